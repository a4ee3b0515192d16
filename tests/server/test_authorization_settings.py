"""The settings of authorization, and the warnings about what they leave open."""

from pathlib import Path

import pytest

from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.counters import Registry
from kafkapy.security.sasl.jaas import SCRAM_MODULE
from kafkapy.server.authorization.start import own_principal
from kafkapy.server.config.authorization import ACL_AUTHORIZERS, has_acls, hook_of, super_users, warnings
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.secured_listeners import SecuredListeners
from tests.harness.brokers import free_port
from tests.harness.certificates import Pki

ACLS = {"authorizer.class.name": ACL_AUTHORIZERS[0]}


@pytest.mark.parametrize("name", ACL_AUTHORIZERS)
def test_kafkas_classes_select_the_authorizer_with_acls(name: str) -> None:
    config = BrokerConfig({"authorizer.class.name": name})
    assert has_acls(config)
    assert hook_of(config) == ""
    assert warnings(config) == []


@pytest.mark.parametrize("name", ["kafka.security.auth.SimpleAclAuthorizer", "Acl"])
def test_another_class_of_java_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="nor MODULE:CLASS of a class in Python") as refused:
        BrokerConfig({"authorizer.class.name": name})
    assert str(refused.value).startswith(f"authorizer.class.name={name}: is not an authorizer of Kafka")


def test_a_class_in_python_comes_from_the_file_only() -> None:
    assert hook_of(BrokerConfig({"authorizer.class.name": "rules:Mine"})) == "rules:Mine"
    with pytest.raises(ConfigError, match="only in the broker's own file"):
        BrokerConfig({}, {}, {"authorizer.class.name": "rules:Mine"})


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", set()),
        (" ", set()),
        ("User:a", {"User:a"}),
        ("User:CN=a,O=b; User:c ;", {"User:CN=a,O=b", "User:c"}),
        ("Group:a:b;;", {"Group:a:b"}),
    ],
)
def test_super_users_are_separated_by_semicolons(text: str, users: set[str]) -> None:
    assert super_users(BrokerConfig({**ACLS, "super.users": text})) == users


@pytest.mark.parametrize("text", ["admin", "User:a;;User:b", ";", "User:a,b;c"])
def test_a_super_user_that_is_no_principal_is_refused(text: str) -> None:
    if text == ";":  # like Java's split, empty parts at the end are ignored
        assert super_users(BrokerConfig({"super.users": text})) == set()
        return
    with pytest.raises(ConfigError, match="is not TYPE:NAME"):
        BrokerConfig({**ACLS, "super.users": text})


def test_what_is_open_is_one_warning() -> None:
    login = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    }
    (line,) = warnings(BrokerConfig(login))
    assert line.startswith("clients log in, but every user may do everything")
    (line,) = warnings(BrokerConfig({**login, "super.users": "User:a"}))
    assert "have no effect without authorizer.class.name" in line
    assert warnings(BrokerConfig({**login, **ACLS})) == []
    assert warnings(BrokerConfig()) == []


def inter_broker(protocol: str, **settings: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "listeners": f"IN://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": f"IN:{protocol}",
            "inter.broker.listener.name": "IN",
            **settings,
        }
    )


def test_a_brokers_own_principal_is_that_of_its_login_or_certificate(tmp_path: Path) -> None:
    assert own_principal(inter_broker("PLAINTEXT"), None) == "User:ANONYMOUS"
    mechanism = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}
    login = {"listener.name.in.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} required username="b" password="p";'}
    assert own_principal(inter_broker("SASL_PLAINTEXT", **mechanism, **login), None) == "User:b"
    assert own_principal(inter_broker("SASL_PLAINTEXT", **mechanism), None) is None
    pki = Pki()
    stores = pki.server.settings(tmp_path, trusted=[pki.authority])
    for auth, rules, expected in (
        ("required", "DEFAULT", "User:CN=broker,OU=Test,O=Acme"),
        ("required", "RULE:^CN=(.*?),.*$/$1-1/", "User:broker-1"),
        ("required", "RULE:^nobody$/x/", None),
        ("none", "DEFAULT", "User:ANONYMOUS"),  # a broker need not present its certificate
    ):
        config = inter_broker("SSL", **stores, **{"ssl.client.auth": auth, "ssl.principal.mapping.rules": rules})
        secured = SecuredListeners(config, Registry())
        assert own_principal(config, secured) == expected
        secured.stop()
