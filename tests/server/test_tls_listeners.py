"""Brokers with TLS listeners: settings of each listener, principals, addresses, certificates changed at run time."""

import errno
import os
import signal
import socket
import ssl
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.network.kernel_tls import suites_of_this_kernel
from kafkapy.network.metrics import METRICS
from kafkapy.protocol.apis import API_VERSIONS, DESCRIBE_CONFIGS, METADATA
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.tls import certificates
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.alter import SET, broker_operations
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.security import tls_settings, warnings
from tests.harness import brokers
from tests.harness.certificates import Issued, Pki, pem
from tests.harness.wire import Wire
from tests.server.requests import batch, make_topic, produce

BOTH = "PLAINTEXT://127.0.0.1:0,SSL://localhost:0"


@pytest.fixture(scope="module")
def pki():
    return Pki()


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a broker with these settings."""
    servers = []

    def begin(settings):
        server = BrokerServer(BrokerConfig({"log.dirs": str(tmp_path / "data"), "broker.id": "0", **settings}))
        servers.append(server)
        server.start()
        server.wait_until_loaded()
        return server

    yield begin
    for server in servers:
        server.stop()


def context_of(pki, directory, issued=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem(pki.authority.certificate))
    if issued is not None:
        context.load_cert_chain(issued.settings(directory, name=f"{id(issued)}")["ssl.keystore.location"])
    return context


def address_of(server, listener):
    return next(one.partition("://")[2] for one in server.listeners if one.startswith(f"{listener}:"))


def shown_certificate(address, context):
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True)


class TlsWire(Wire):
    """A connection with TLS."""

    def __init__(self, address, context, session=None):
        super().__init__(address)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost", session=session)


@pytest.fixture
def principals(monkeypatch):
    """Return a list to which the principal of each request is added."""
    found = []

    def noted(call, request):
        found.append(call.connection.principal)

    from kafkapy.server.handlers import metadata

    handle = metadata._look_up

    def look_up(broker, call, request):
        noted(call, request)
        return handle(broker, call, request)

    monkeypatch.setattr(metadata, "_look_up", look_up)
    return found


def test_a_client_gets_the_addresses_of_its_own_listener(start, pki, tmp_path):
    server = start({"listeners": BOTH, **pki.server.settings(tmp_path)})
    with (
        Wire(address_of(server, "PLAINTEXT")) as plain,
        TlsWire(address_of(server, "SSL"), context_of(pki, tmp_path)) as tls,
    ):
        make_topic(plain, "t")
        for wire, listener in ((plain, "PLAINTEXT"), (tls, "SSL")):
            assert produce(wire, "t", batch(b"value")).error_code == Errors.NONE
            (node,) = wire.call(METADATA, 12, METADATA.Request()).brokers
            assert f"{node.host}:{node.port}" == address_of(server, listener)


def test_each_listener_has_its_own_settings(start, pki, tmp_path, principals):
    """Listener IN requires client certificates and maps them to names, OUT asks for none, FREE accepts both."""
    other = pki.authority.issue("CN=outside", names=["localhost"])
    out = {f"listener.name.out.{name}": value for name, value in other.settings(tmp_path / "out").items()}
    settings = {
        "listeners": "IN://localhost:0,OUT://localhost:0,FREE://localhost:0",
        "listener.security.protocol.map": "IN:SSL,OUT:SSL,FREE:SSL",
        "inter.broker.listener.name": "IN",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+),OU=Test.*$/$1/U,DEFAULT",
        "listener.name.out.ssl.client.auth": "none",
        "listener.name.free.ssl.client.auth": "requested",
        "listener.name.free.ssl.principal.mapping.rules": "DEFAULT",
        **pki.server.settings(tmp_path, trusted=[pki.authority]),
        **out,
    }
    server = start(settings)
    anybody, alice = context_of(pki, tmp_path), context_of(pki, tmp_path, pki.client)
    assert shown_certificate(address_of(server, "IN"), alice) == pki.server.der
    assert shown_certificate(address_of(server, "OUT"), anybody) == other.der
    for listener, context in (("IN", alice), ("OUT", alice), ("FREE", alice), ("FREE", anybody)):
        with TlsWire(address_of(server, listener), context) as wire:
            wire.call(METADATA, 12, METADATA.Request())
    assert principals == ["User:ALICE", "User:ANONYMOUS", "User:CN=alice,OU=Test,O=Acme", "User:ANONYMOUS"]
    with pytest.raises(OSError, match=r"(?i)alert|reset"), TlsWire(address_of(server, "IN"), anybody) as wire:
        wire.call(METADATA, 12, METADATA.Request())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"ssl\.keystore\.location=: not set"),
        ({"ssl.keystore.location": "/none"}, r"ssl\.keystore\.location=/none: .*/none cannot be read.*listener SSL"),
        (
            {"ssl.keystore.location": "/none", "listener.name.ssl.ssl.keystore.location": "/nor.this"},
            r"listener\.name\.ssl\.ssl\.keystore\.location=/nor\.this: ",
        ),
        ({"ssl.keystore.password": "xyzzy"}, r"ssl\.keystore\.password=(?!xyzzy).*: set, but"),
    ],
)
def test_stores_that_cannot_be_used_refuse_the_start(start, settings, message):
    with pytest.raises(ConfigError, match=message):
        start({"listeners": BOTH, **settings})


def test_mapping_rules_that_cannot_be_used_refuse_the_start(start, pki, tmp_path):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules=RULE:\(/x/: "):
        start({"listeners": BOTH, "ssl.principal.mapping.rules": "RULE:(/x/", **pki.server.settings(tmp_path)})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, None),
        ({"listeners": "PLAINTEXT://localhost:9092"}, None),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, None),
        (
            {"listeners": "SSL://:9092", "security.inter.broker.protocol": "SSL", "ssl.client.auth": "required"},
            None,
        ),
        (
            {"listeners": "SSL://:9092", "security.inter.broker.protocol": "SSL"},
            "SSL://:9092 lets everybody in: ssl.client.auth is none",
        ),
        (
            {"listeners": "PLAINTEXT://localhost:9092", "kafkapy.metrics.listen": "0.0.0.0:9404"},
            "kafkapy.metrics.listen=0.0.0.0:9404 shows the metrics to other machines",
        ),
        ({"listeners": "PLAINTEXT://localhost:9092", "kafkapy.metrics.listen": "[::1]:9404"}, None),
        ({"listeners": "PLAINTEXT://:9092"}, "PLAINTEXT://:9092 is open to other machines in plain text, and its "),
        ({"listeners": "PLAINTEXT://10.0.0.7:9092"}, "PLAINTEXT://10.0.0.7:9092 is open to other machines"),
    ],
)
def test_what_is_open_to_other_machines_is_a_warning(settings, message):
    lines = warnings(BrokerConfig(settings))
    assert lines == [] if message is None else len(lines) == 1 and message in lines[0]


def test_a_damaged_store_does_not_refuse_cluster_wide_settings(start, pki, tmp_path, caplog):
    settings = pki.server.settings(tmp_path)
    server = start({"listeners": BOTH, **settings})
    Path(settings["ssl.keystore.location"]).write_text("damaged")

    def alter(*, per_broker):
        server.services.dynamic_config.alter(
            lambda current: broker_operations(current, [("log.cleaner.threads", SET, "2")]),
            per_broker=per_broker,
            validate_only=False,
        )

    alter(per_broker=False)
    assert server.services.config["log.cleaner.threads"] == 2
    assert "the new key and trust stores are not used: ssl.keystore.location=" in caplog.text
    with pytest.raises(KafkaError, match=r"ssl\.keystore\.location="):  # as in Kafka
        alter(per_broker=True)
    assert shown_certificate(address_of(server, "SSL"), context_of(pki, tmp_path / "client")) == pki.server.der


def test_an_expired_certificate_of_one_listener_does_not_keep_another_from_a_new_one(start, pki, tmp_path, monkeypatch):
    outside = pki.authority.issue("CN=outside", names=["localhost"])
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,IN://localhost:0,OUT://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SSL,OUT:SSL",
    }
    for name, issued in (("in", pki.server), ("out", outside)):
        own = issued.settings(tmp_path / name)
        settings |= {f"listener.name.{name}.{key}": value for key, value in own.items()}
    server = start(settings)
    days_left = certificates.Certificate.days_left
    monkeypatch.setattr(
        certificates.Certificate,
        "days_left",
        lambda self, now=None: -1.0 if self.der == outside.der else days_left(self, now),
    )
    renewed = pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
    replace(settings["listener.name.in.ssl.keystore.location"], renewed)
    server.reload_stores()
    assert shown_certificate(address_of(server, "IN"), context_of(pki, tmp_path)) == renewed.der
    server.services.dynamic_config.alter(
        lambda current: broker_operations(current, [("log.cleaner.threads", SET, "2")]),
        per_broker=True,
        validate_only=False,
    )
    assert server.services.config["log.cleaner.threads"] == 2


def test_new_stores_are_not_used_when_no_descriptor_is_left(start, pki, tmp_path, monkeypatch, caplog):
    settings = pki.server.settings(tmp_path)
    server = start({"listeners": BOTH, **settings})
    renewed = pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
    replace(settings["ssl.keystore.location"], renewed)

    def none_left(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as short:
        short.setattr(os, "memfd_create", none_left)
        server.reload_stores()
    assert "the new key and trust stores are not used: ssl.keystore.location=" in caplog.text
    assert "Too many open files" in caplog.text
    server.reload_stores()
    assert shown_certificate(address_of(server, "SSL"), context_of(pki, tmp_path / "client")) == renewed.der


PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, ["ssl.client.auth=required does not count for the listener SASL_SSL, because its protocol is SASL_SSL: "
              "set listener.name.sasl_ssl.ssl.client.auth if clients shall need certificates, too"]),
        ({"listener.name.sasl_ssl.ssl.client.auth": "required"}, []),
        ({"listener.name.sasl_ssl.ssl.client.auth": "none"}, []),
    ],
)  # fmt: skip
def test_client_certificates_on_sasl_ssl_need_the_listener_s_own_setting(own, expected):
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://localhost:1,SASL_SSL://:2",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
            "ssl.client.auth": "required",
            **own,
        }
    )
    assert warnings(config) == expected
    settings = tls_settings(config, config.listeners[1])
    assert settings["ssl.client.auth"] == own.get("listener.name.sasl_ssl.ssl.client.auth", "none")


@pytest.mark.parametrize("enabled", ["false", "true"])
def test_the_kernel_encrypts_if_it_can_and_is_allowed_to(start, pki, tmp_path, caplog, enabled):
    server = start({"listeners": BOTH, "kafkapy.ktls.enable": enabled, **pki.server.settings(tmp_path)})
    can = bool(suites_of_this_kernel())
    expected = "kernel" if can and enabled == "true" else "openssl"
    with TlsWire(address_of(server, "SSL"), context_of(pki, tmp_path)) as tls:
        assert tls.call(API_VERSIONS, 0, API_VERSIONS.Request()).error_code == Errors.NONE
        values = server.services.counters.read()[METRICS["network_tls_connections"]]
        assert values == [(("SSL", "TLS_AES_256_GCM_SHA384", "TLSv1.3", expected), 1)]
    warned = "kafkapy.ktls.enable is true, but this kernel cannot encrypt" in caplog.text
    assert warned == (enabled == "true" and not can)


class TwoYearsLater(datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + timedelta(days=730)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_session_is_not_resumed_when_the_client_s_certificate_has_expired(
    start, pki, tmp_path, monkeypatch, caplog, protocol, version
):
    """In a resumed session the client sends no certificate: the certificate of the first handshake counts."""
    server = start(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,IN://localhost:0",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,IN:{protocol}",
            "listener.name.in.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.in.plain.sasl.jaas.config": PLAIN_USERS,
            **pki.server.settings(tmp_path, trusted=[pki.authority]),
        }
    )
    address, context = address_of(server, "IN"), context_of(pki, tmp_path, pki.client)
    context.minimum_version = context.maximum_version = version

    def connected(session=None):
        with TlsWire(address, context, session) as wire:
            wire.call(API_VERSIONS, 3, client_software_name="test", client_software_version="1")
            return wire.socket.session, wire.socket.session_reused

    session, is_resumed = connected()
    assert not is_resumed
    session, is_resumed = connected(session)
    assert is_resumed
    monkeypatch.setattr(certificates, "datetime", TwoYearsLater)
    with pytest.raises((OSError, AssertionError)):  # reset or closed
        connected(session)
    assert "authentication failed: its certificate is not accepted: certificate has expired" in caplog.text


def test_certificates_change_with_an_alteration_of_the_listener_s_settings(start, pki, tmp_path):
    prefix = "listener.name.ssl."
    first = {prefix + name: value for name, value in pki.server.settings(tmp_path).items()}
    server = start({"listeners": BOTH, **first})
    address, context = address_of(server, "SSL"), context_of(pki, tmp_path)

    def alter(*operations, validate_only=False):
        server.services.dynamic_config.alter(
            lambda current: broker_operations(current, [(prefix + name, SET, value) for name, value in operations]),
            per_broker=True,
            validate_only=validate_only,
        )

    renewed = pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
    path = renewed.settings(tmp_path / "renewed")["ssl.keystore.location"]
    with TlsWire(address, context) as before:
        alter(("ssl.keystore.location", path), validate_only=True)
        assert shown_certificate(address, context) == pki.server.der
        alter(("ssl.keystore.location", path))
        assert shown_certificate(address, context) == renewed.der
        # Set the same path again after the file was replaced.
        again = pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
        replace(path, again)
        alter(("ssl.keystore.location", path))
        assert shown_certificate(address, context) == again.der
        for location, reason in (
            ("/none", "cannot be read"),
            (write(tmp_path, pki.stranger), "the new certificate is for"),
        ):
            with pytest.raises(KafkaError, match=reason) as refused:
                alter(("ssl.keystore.location", location))
            assert refused.value.code == Errors.INVALID_REQUEST
            assert shown_certificate(address, context) == again.der
            assert server.services.config.dynamic_broker == {prefix + "ssl.keystore.location": path}
        before.call(METADATA, 12, METADATA.Request())
    server.stop()
    server = start({"listeners": BOTH, **first})  # the stored setting overrides these
    assert shown_certificate(address_of(server, "SSL"), context) == again.der


def test_a_pkcs12_store_with_another_password_comes_in_one_alteration(start, pki, tmp_path):
    prefix = "listener.name.ssl.ssl.keystore."
    first = pki.server.java_settings(tmp_path / "first", password="first-password")
    settings = {"listeners": BOTH, "password.encoder.secret": "encoder", **first}
    server = start(settings)
    renewed = pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
    second = renewed.java_settings(tmp_path / "second", password="second-password")

    def alter(*names):
        changes = [(f"listener.name.ssl.{name}", SET, second[name]) for name in names]
        server.services.dynamic_config.alter(
            lambda current: broker_operations(current, changes), per_broker=True, validate_only=False
        )

    location, password, key = "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"
    with pytest.raises(KafkaError, match="password") as refused:
        alter(location)
    assert "second-password" not in str(refused.value)
    address, context = address_of(server, "SSL"), context_of(pki, tmp_path)
    assert shown_certificate(address, context) == pki.server.der
    alter(location, password, key)
    assert shown_certificate(address, context) == renewed.der
    assert "second-password" not in repr(server.services.configs.broker(0))  # the password is stored encrypted
    server.stop()
    server = start(settings)
    assert shown_certificate(address_of(server, "SSL"), context) == renewed.der
    assert prefix + "location" in server.services.config.dynamic_broker


def replace(path: str, issued: Issued) -> None:
    new = Path(path).with_suffix(".new")
    new.write_text(issued.pem())
    new.replace(path)


def write(directory: Path, issued: Issued) -> str:
    return issued.settings(directory / "other")["ssl.keystore.location"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("listener.name.ssl.ssl.client.auth", "required", "cannot be changed while the broker runs"),
        ("ssl.client.auth", "required", "cannot be changed while the broker runs"),
        ("ssl.keystore.location", "/k", "can only be changed for one listener"),
    ],
)
def test_settings_that_need_a_restart_are_refused(start, pki, tmp_path, name, value, message):
    server = start({"listeners": BOTH, **pki.server.settings(tmp_path)})
    with pytest.raises(KafkaError, match=message):
        server.services.dynamic_config.alter(
            lambda current: broker_operations(current, [(name, SET, value)]), per_broker=True, validate_only=False
        )


def test_described_settings_hide_passwords(start, pki, tmp_path):
    settings = pki.server.settings(tmp_path, password="xyzzy")
    server = start({"listeners": BOTH, **settings, "listener.name.ssl.ssl.key.password": "xyzzy"})
    with TlsWire(address_of(server, "SSL"), context_of(pki, tmp_path)) as wire:
        make = DESCRIBE_CONFIGS.Request
        response = wire.call(
            DESCRIBE_CONFIGS,
            4,
            make(resources=[make.Resources(resource_type=4, resource_name="0")], include_synonyms=True),
        )
    found = {one.name: one for one in response.results[0].configs}
    assert found["listener.name.ssl.ssl.key.password"].is_sensitive
    assert found["ssl.keystore.location"].value == settings["ssl.keystore.location"]
    assert "xyzzy" not in repr(response)


def test_sighup_loads_certificates_again(pki, tmp_path):
    """Connected clients stay connected, and a damaged file changes nothing."""
    settings = pki.server.settings(tmp_path)
    broker = brokers.KafkapyBroker(tmp_path / "broker", {"listeners": BOTH, **settings})
    try:
        address, context = broker.ready["addresses"].rpartition("://")[2], context_of(pki, tmp_path)
        assert shown_certificate(address, context) == pki.server.der
        renewed = pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
        with TlsWire(address, context) as before:
            replace(settings["ssl.keystore.location"], renewed)
            broker.process.child.send_signal(signal.SIGHUP)
            until(lambda: shown_certificate(address, context) == renewed.der)
            before.call(METADATA, 12, METADATA.Request())
        Path(settings["ssl.keystore.location"]).write_text("damaged")
        broker.process.child.send_signal(signal.SIGHUP)
        until(lambda: "the new key and trust stores are not used" in broker.process.output)
        assert shown_certificate(address, context) == renewed.der
    finally:
        broker.stop()


def until(condition):
    """Wait until the condition is true, for changes by another process."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come true")
