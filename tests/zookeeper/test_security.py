"""TLS, authentication and ACLs with a ZooKeeper server that requires them."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kafkapy.client import ConsumerConnector, KeyedMessage, Producer
from kafkapy.client.errors import ConnectionFailed
from kafkapy.metadata import paths
from kafkapy.metadata.tree import Create, Set
from kafkapy.metadata.zookeeper.client import ZooKeeperError, ZooKeeperSettings
from kafkapy.metadata.zookeeper.properties import PASSWORD
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.apply import zookeeper_settings
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.tools.main import main
from tests.harness import toolchain
from tests.harness.brokers import free_port
from tests.harness.zookeeper import SESSION_MS, ZooKeeper

JAAS = """\
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="kafka-secret";
};
"""
SERVER = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort={port}
secureClientPortAddress=127.0.0.1
ssl.keyStore.location={directory}/server.pem
ssl.trustStore.location={directory}/certificate.pem
ssl.clientAuth=none
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
"""


class Secure(NamedTuple):
    server: ZooKeeper
    tls: str
    certificate: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    key, certificate = make_certificate(directory, "server")
    (directory / "server.pem").write_text(key.read_text() + certificate.read_text())
    certificate.rename(directory / "certificate.pem")
    (directory / "jaas.conf").write_text(JAAS)
    port = free_port()
    java = [f"-Djava.security.auth.login.config={directory}/jaas.conf"]
    server = ZooKeeper(directory, settings=SERVER.format(port=port, directory=directory), java=java)
    yield Secure(server, f"127.0.0.1:{port}", directory / "certificate.pem")
    server.stop()


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    command = [toolchain.find("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return key, certificate


def settings(connect: str, **more: str) -> ZooKeeperSettings:
    """Return the ZooKeeper settings that a broker would make from its properties."""
    values = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": str(SESSION_MS)}
    values["zookeeper.connection.timeout.ms"] = "5000"
    return zookeeper_settings(BrokerConfig({**values, **{name.replace("_", "."): text for name, text in more.items()}}))


LOGIN = {"kafkapy_zookeeper_sasl_username": "kafka", "kafkapy_zookeeper_sasl_password": "kafka-secret"}


def test_nodes_belong_to_the_login_that_created_them(secure: Secure) -> None:
    trusted = {"zookeeper_ssl_client_enable": "true", "zookeeper_ssl_truststore_location": str(secure.certificate)}
    tree = ZooKeeperTree(settings(f"{secure.tls}/acl", zookeeper_set_acl="true", **LOGIN, **trusted))
    stranger = KazooClient(f"{secure.server.address}/acl")
    stranger.start()
    try:
        tree.ensure(*paths.ROOTS)
        tree.commit([Create("/config/users/u", b"hidden"), Create(paths.SCRAM_CHALLENGE_KEY, b"hidden")])
        tree.commit([Create("/brokers/topics/t", b"seen")])
        assert stranger.get("/brokers/topics/t")[0] == b"seen"
        with pytest.raises(NoAuthError):
            stranger.set("/brokers/topics/t", b"changed")
        for secret in ("/config/users/u", paths.SCRAM_CHALLENGE_KEY):
            with pytest.raises(NoAuthError):
                stranger.get(secret)
        stranger.create("/consumers/g", b"anybody's")
        tree.commit([Set("/brokers/topics/t", b"ours")])
        (acl,) = [acl for acl in stranger.get_acls("/brokers/topics/t")[0] if acl.id.scheme == "sasl"]
        assert acl.id.id == "kafka"
    finally:
        stranger.stop()
        stranger.close()
        tree.close()


def test_nodes_that_may_not_be_read_are_left_alone(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    owner = ZooKeeperTree(settings(f"{secure.server.address}/hidden", zookeeper_set_acl="true", **LOGIN))
    owner.ensure("/config/users", "/brokers")
    other = ZooKeeperTree(settings(f"{secure.server.address}/hidden"))
    assert other.exists("/brokers")
    assert not other.exists("/config/users")
    assert "the broker's login may not read /hidden/config/users in ZooKeeper" in caplog.text
    other.close()
    owner.close()


def test_a_wrong_password_is_reported(secure: Secure) -> None:
    with pytest.raises(ZooKeeperError, match="refuses the login"):
        ZooKeeperTree(settings(secure.server.address, **{**LOGIN, "kafkapy_zookeeper_sasl_password": "wrong"}))


def test_a_server_with_an_untrusted_certificate_is_refused(secure: Secure, tmp_path: Path) -> None:
    _, another = make_certificate(tmp_path, "another")
    wrong = {"zookeeper_ssl_truststore_location": str(another), "zookeeper_ssl_truststore_type": "PEM"}
    wrong["zookeeper_connection_timeout_ms"] = "1500"
    with pytest.raises(ZooKeeperError, match="certificate"):
        ZooKeeperTree(settings(secure.tls, zookeeper_ssl_client_enable="true", **wrong))
    with pytest.raises(ZooKeeperError, match="does not exist"):
        ZooKeeperTree(
            settings(secure.tls, zookeeper_ssl_client_enable="true", zookeeper_ssl_truststore_location="/no.pem")
        )


def test_commands_take_tls_and_the_login_from_a_brokers_properties(
    secure: Secure, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    owner = ZooKeeperTree(settings(f"{secure.server.address}/command", zookeeper_set_acl="true", **LOGIN))
    owner.ensure("/config/users/u")
    owner.close()
    file = tmp_path / "server.properties"
    lines = ["zookeeper.ssl.client.enable=true", f"zookeeper.ssl.truststore.location={secure.certificate}"]
    lines += [f"{name.replace('_', '.')}={value}" for name, value in LOGIN.items()]
    file.write_text("\n".join(lines))
    words = ["zk", "ls", "/config/users", "--zookeeper", f"{secure.tls}/command"]
    assert main([*words, "--command-config", str(file)]) == 0
    assert capfd.readouterr().out == "u\n"
    file.write_text("zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/etc/kafka/trust.jks\n")
    assert main([*words, "--command-config", str(file)]) == 1
    assert "must be a PEM file" in capfd.readouterr().err


def test_the_original_clients_take_tls_and_the_login(secure: Secure, start: Callable[..., BrokerServer]) -> None:
    where = f"{secure.tls}/clients"
    trusted = {"zookeeper_ssl_client_enable": "true", "zookeeper_ssl_truststore_location": str(secure.certificate)}
    start(where=where, zookeeper_set_acl="true", **LOGIN, **trusted)
    trust = {name.replace("_", "."): value for name, value in {**LOGIN, **trusted}.items()}
    with Producer({"zk.connect": where, **trust}) as producer:
        producer.send(KeyedMessage("t", b"by TLS"))
    reading = {"zookeeper.connect": where, "group.id": "g", "auto.offset.reset": "smallest", **trust}
    with ConsumerConnector({**reading, "consumer.timeout.ms": "10000"}) as consumer:
        (stream,) = consumer.create_message_streams({"t": 1})["t"]
        assert next(stream).value == b"by TLS"
    wrong = {PASSWORD: "wrong"}
    with pytest.raises(ZooKeeperError, match="refuses the login"):
        ConsumerConnector({**reading, **wrong})
    with pytest.raises(ConnectionFailed, match="refuses the login"):
        Producer({"zk.connect": where, **trust, **wrong})
    for create in (lambda more: ConsumerConnector({**reading, **more}), lambda more: Producer({**reading, **more})):
        with pytest.raises(ConfigError, match="must be a PEM file"):
            create({"zookeeper.ssl.truststore.location": "/etc/trust.jks"})
        with pytest.raises(ConfigError, match="set both or neither"):
            create({PASSWORD: ""})
