"""A broker does not start with security settings that it does not support, since it would be open to everybody."""

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.alter import DELETE, broker_operations, check_broker
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.security import check, check_stored, warnings
from kafkapy.tools.main import main
from tests.server.requests import start_broker

UNKNOWN_TLS = "this broker does not know this setting of TLS"
UNKNOWN_SASL = "this broker does not know this setting of SASL"
NO_KERBEROS = "Kerberos (GSSAPI) is not supported"
NO_TOKENS = "delegation tokens are not supported"
NO_BUILDER = "only Kafka's default class is built in"
NO_QUOTAS = "classes in Java that decide quotas are not supported"
NO_ZOOKEEPER_TLS = "the TLS of connections to ZooKeeper cannot be restricted in this way"
NO_POLICY = "makes every topic and every change that a client asks for"


@pytest.mark.parametrize(
    ("name", "value", "meaning"),
    [
        ("authorizer.zookeeper.url", "zk:2181/acls", "from the broker's own ZooKeeper only"),
        ("config.providers", "file", "would itself be the password"),
        ("sasl.kerberos.service.name", "kafka", NO_KERBEROS),
        ("sasl.of.a.newer.kafka", "1", UNKNOWN_SASL),
        ("listener.name.external.plain.sasl.of.a.newer.kafka", "1", UNKNOWN_SASL),
        ("ssl.of.a.newer.kafka", "1", UNKNOWN_TLS),
        ("listener.name.external.ssl.of.a.newer.kafka", "1", UNKNOWN_TLS),
        ("create.topic.policy.class.name", "com.example.Policy", NO_POLICY),
        ("alter.config.policy.class.name", "com.example.Policy", NO_POLICY),
        ("principal.builder.class", "com.example.Builder", NO_BUILDER),
        ("delegation.token.secret.key", "xyzzy", NO_TOKENS),
        ("listener.name.external.principal.builder.class", "com.example.Builder", NO_BUILDER),
        ("client.quota.callback.class", "com.example.Quotas", NO_QUOTAS),
        ("zookeeper.ssl.cipher.suites", "TLS_AES_256_GCM_SHA384", NO_ZOOKEEPER_TLS),
        ("zookeeper.ssl.crl.enable", "true", NO_ZOOKEEPER_TLS),
        ("zookeeper.ssl.enabled.protocols", "TLSv1.3", NO_ZOOKEEPER_TLS),
        ("zookeeper.ssl.ocsp.enable", "true", NO_ZOOKEEPER_TLS),
        ("zookeeper.ssl.protocol", "TLSv1.3", NO_ZOOKEEPER_TLS),
    ],
)
def test_a_setting_that_protects_a_kafka_broker_refuses_the_start(name: str, value: str, meaning: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(BrokerConfig({name: value}))
    message = str(refused.value)
    assert message.startswith(f"{name}=")
    assert meaning in message
    assert message.endswith("; remove it if that is acceptable")
    assert "xyzzy" not in message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"authorizer.class.name": "", "super.users": " ", "sasl.enabled.mechanisms": ""},
        {
            "security.inter.broker.protocol": "PLAINTEXT",
            "ssl.client.auth": "none",
            "ssl.endpoint.identification.algorithm": "",
        },
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"},
        {"sasl.mechanism.inter.broker.protocol": "GSSAPI", "connections.max.reauth.ms": "0"},
        {"listener.name.plaintext.ssl.client.auth": "none", "listener.name.plaintext.max.connections": "5"},
        {"zookeeper.ssl.crl.enable": "false", "zookeeper.ssl.cipher.suites": "", "client.quota.callback.class": ""},
        {"zookeeper.ssl.client.enable": "false", "kafkapy.zookeeper.sasl.username": "kafka"},
        {"password.encoder.secret": "xyzzy", "confluent.ssl.something": "1"},
    ],
)
def test_settings_that_protect_nothing_are_accepted(settings: dict[str, str]) -> None:
    check(BrokerConfig(settings))


def test_one_sentence_names_all_refused_security_settings() -> None:
    with pytest.raises(ConfigError) as refused:
        check(
            BrokerConfig(
                {"sasl.kerberos.kinit.cmd": "k", "num.partitions": "3", "authorizer.zookeeper.url": "z", "ssl.new": "x"}
            )
        )
    assert str(refused.value) == (
        "sasl.kerberos.kinit.cmd=k: Kerberos (GSSAPI) is not supported; remove it if that is acceptable, and the other "
        "settings of that kind: authorizer.zookeeper.url, ssl.new"
    )


OUTSIDE = {
    "listeners": "OUTSIDE://localhost:1",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "OUTSIDE",
}


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("listener.name.OUTSIDE.ssl.client.auth", "listener.name.outside.ssl.client.auth"),
        ("listener.name.Outside.ssl.key.password", "listener.name.outside.ssl.key.password"),
        (
            "listener.name.outside.SCRAM-SHA-256.connections.max.reauth.ms",
            "listener.name.outside.scram-sha-256.connections.max.reauth.ms",
        ),
    ],
)
def test_a_listener_s_setting_that_would_be_ignored_for_its_capital_letters_is_refused(name: str, read_as: str) -> None:
    value = {"ssl.client.auth": "required"}.get(name.partition("OUTSIDE.")[2], "123456")
    with pytest.raises(ConfigError) as refused:
        check(BrokerConfig({**OUTSIDE, name: value}))
    assert str(refused.value).startswith(f"{name}=")
    assert f"write {read_as}, or remove it" in str(refused.value)
    assert ("123456" in str(refused.value)) == ("reauth" in name)
    with pytest.raises(KafkaError, match=read_as):
        check_broker(BrokerConfig(OUTSIDE), {name: value}, per_broker=True)
    check(BrokerConfig({**OUTSIDE, read_as: value}))


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
@pytest.mark.parametrize("name", ["principal.builder.class", "listener.name.outside.principal.builder.class"])
def test_a_class_that_makes_principals_is_refused_where_it_would_be_ignored(name: str, protocol: str) -> None:
    listeners = {
        "listeners": "OUTSIDE://localhost:1,LOGIN://localhost:2",
        "listener.security.protocol.map": f"OUTSIDE:{protocol},LOGIN:SASL_SSL",
        "inter.broker.listener.name": "OUTSIDE",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with pytest.raises(ConfigError) as refused:
        check(BrokerConfig({**listeners, name: "module:Builder"}))
    assert str(refused.value).startswith(f"{name}=module:Builder: would be ignored on the listener OUTSIDE")
    check(BrokerConfig({**listeners, "listener.name.login.principal.builder.class": "module:Builder"}))


def test_settings_of_a_listener_that_does_not_exist_cause_one_line() -> None:
    name = "listener.name.OUTSIDER.ssl.client.auth"
    config = BrokerConfig({**OUTSIDE, name: "required", "listener.name.outside.ssl.client.auth": "required"})
    check(config)
    assert warnings(config) == [f"settings of listeners that this broker does not have, ignored: {name}"]


@pytest.mark.parametrize(
    ("name", "value", "meaning"),
    [
        ("principal.builder.class", "com.example.Builder", NO_BUILDER),
        ("super.users", "User:admin", "cannot be changed while the broker runs"),
        ("sasl.of.a.newer.kafka", "xyzzy", UNKNOWN_SASL),
    ],
)
def test_a_security_setting_is_refused_while_the_broker_runs(name: str, value: str, meaning: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_broker(BrokerConfig(), {name: value}, per_broker=True)
    assert refused.value.code == Errors.INVALID_REQUEST
    assert refused.value.message.startswith(f"{name}=")
    assert meaning in refused.value.message
    assert "xyzzy" not in refused.value.message


def test_a_stored_security_setting_refuses_the_start(tmp_path) -> None:
    server = start_broker(tmp_path, broker_id=0)
    server.services.configs.alter_broker(0, lambda _: {"sasl.kerberos.kinit.cmd": "/kinit", "message.max.bytes": "5"})
    server.stop()
    with pytest.raises(ConfigError) as refused:
        start_broker(tmp_path, broker_id=0)
    assert str(refused.value) == (
        "sasl.kerberos.kinit.cmd=/kinit: Kerberos (GSSAPI) is not supported; it is stored as a dynamic setting, in "
        "/config/brokers/0: if that is acceptable, start with an empty value or Kafka's default for it (-o), and "
        "remove it with kafkapy configs alter --delete"
    )
    server = start_broker(tmp_path, broker_id=0, sasl_kerberos_kinit_cmd="/usr/bin/kinit")
    remove = [("sasl.kerberos.kinit.cmd", DELETE, None)]
    server.services.dynamic_config.alter(
        lambda current: broker_operations(current, remove), per_broker=True, validate_only=False
    )
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    assert server.services.config.dynamic_broker == {"message.max.bytes": "5"}
    server.stop()


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("sasl.kerberos.service.name", True),
        ("listener.name.in.sasl.kerberos.service.name", True),
        ("listener.name.external.sasl.kerberos.service.name", False),  # this broker has no such listener
    ],
)
def test_a_setting_stored_for_another_listener_does_not_refuse_the_start(name: str, is_refused: bool) -> None:
    config = BrokerConfig({"listeners": "IN://h:1", "listener.security.protocol.map": "IN:PLAINTEXT",
                           "inter.broker.listener.name": "IN"})  # fmt: skip
    if is_refused:
        with pytest.raises(ConfigError, match=name):
            check_stored(config, {"/config/brokers/<default>": {name: "x"}})
    else:
        check_stored(config, {"/config/brokers/<default>": {name: "x"}})


def test_a_security_setting_written_while_the_broker_runs_is_logged_as_an_error(tmp_path, caplog) -> None:
    server = start_broker(tmp_path, broker_id=0)
    try:
        server.services.configs.alter_broker(
            0, lambda _: {"sasl.kerberos.kinit.cmd": "/kinit", "message.max.bytes": "5"}
        )
        server.services.dynamic_config.reload()
        assert server.services.config.message_max_bytes == 5
        lines = [one.message for one in caplog.records if one.levelname == "ERROR"]
        assert any("sasl.kerberos.kinit.cmd=/kinit: Kerberos (GSSAPI) is not supported" in line for line in lines)
    finally:
        server.stop()


def test_a_refused_start_opens_nothing(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"^authorizer\.zookeeper\.url=\[hidden\]: ACLs are read"):
        start_broker(tmp_path / "data", authorizer_zookeeper_url="zk")
    assert not (tmp_path / "data").exists()


def test_the_start_command_names_the_refused_setting(tmp_path, capsys) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:0\nsuper.users=admin\n")
    assert main(["start", str(properties)]) != 0
    assert "super.users=admin: 'admin' is not TYPE:NAME" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
