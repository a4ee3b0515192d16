"""The settings of SASL listeners: how they are looked up, and which are refused or warned about at the start."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from kafkapy.security.sasl.oauthbearer import OAuthServer, first_message
from kafkapy.server.config.alter import DELETE, SET, broker_operations, check_broker
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.sasl import sasl_settings
from kafkapy.server.logins import steps
from tests.server.requests import start_broker

SASL = {
    "listeners": "CLIENT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
PREFIX = "listener.name.client"
USERS = {f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="xyzzy";'}
UNPREFIXED = f"{PLAIN_MODULE} required user_a=xyzzy;"
TOKENS = "kafkapy.oauthbearer.unsecured.tokens.enable"


def with_settings(changes: dict[str, Any]) -> BrokerConfig:
    settings = {**SASL, **changes}
    return BrokerConfig({name: value for name, value in settings.items() if value is not None})


def settings_of(changes: dict[str, Any]) -> Any:
    config = with_settings(changes)
    return sasl_settings(config, config.listeners[0])


def test_a_listeners_and_a_mechanisms_setting_come_before_the_general_one() -> None:
    found = settings_of(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            f"{PREFIX}.sasl.enabled.mechanisms": "SCRAM-SHA-512, SCRAM-SHA-256",
            "connections.max.reauth.ms": "1000",
            f"{PREFIX}.connections.max.reauth.ms": "2000",
            f"{PREFIX}.scram-sha-512.connections.max.reauth.ms": "3000",
            f"{PREFIX}.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="p";',
        }
    )
    assert list(found.mechanisms) == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    assert [one.max_reauth_ms for one in found.mechanisms.values()] == [3000, 2000]
    assert found.mechanisms["SCRAM-SHA-512"].options == {"username": "u", "password": "p"}
    assert found.mechanisms["SCRAM-SHA-256"].options == {}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-256"},
        {f"{PREFIX}.scram-sha-256.sasl.server.callback.handler.class":
            "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler"},
        {"principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"},
        {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN", **USERS},
        {"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER", TOKENS: "true"},
    ],
)  # fmt: skip
def test_settings_that_are_accepted(changes: dict[str, str]) -> None:
    settings_of(changes)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sasl.enabled.mechanisms": None}, "GSSAPI.*SCRAM-SHA-512"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI.*PLAIN"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "SCRAM-SHA-1 is not supported"),
        ({"sasl.mechanism.inter.broker.protocol": None}, "brokers log in to each other"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "must be among"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN"}, "needs users for PLAIN"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", "sasl.jaas.config": UNPREFIXED},
         "needs users for PLAIN"),
        ({f"{PREFIX}.scram-sha-256.sasl.jaas.config": 'x.JndiLoginModule required y="xyzzy";'}, "login module"),
        ({f"{PREFIX}.scram-sha-256.sasl.jaas.config": f'{PLAIN_MODULE} required y="xyzzy";'}, "ScramLoginModule"),
        ({f"{PREFIX}.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} required y="xyzzy"'}, "semicolon"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER"}, "OAUTHBEARER needs the URL"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
          "sasl.oauthbearer.jwks.endpoint.url": "ftp://h/k"}, "http"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER", TOKENS: "true",
          "sasl.oauthbearer.jwks.endpoint.url": "file:///k"}, "contradicts"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER", TOKENS: "true",
          f"{PREFIX}.oauthbearer.sasl.jaas.config":
          f'{OAUTH_MODULE} required unsecuredValidatorRequiredScope="xyzzy";'}, "unsecuredValidatorRequiredScope"),
        ({f"{PREFIX}.scram-sha-256.sasl.server.callback.handler.class": "com.Mine"}, "nor MODULE:CLASS"),
        ({f"{PREFIX}.scram-sha-256.sasl.server.callback.handler.class": "mine:Check"}, "for PLAIN and OAUTHBEARER"),
        ({"principal.builder.class": "com.Mine"}, "nor MODULE:CLASS"),
        ({"zookeeper.connect": "h:1"}, "must have username and password"),
    ],
)  # fmt: skip
def test_settings_that_are_refused_with_a_sentence(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        with_settings(changes)
    assert "xyzzy" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sasl.jaas.config": f"{SCRAM_MODULE} required;"}, "lacks a SASL mechanism"),
        ({f"{PREFIX}.sasl.jaas.config": f"{SCRAM_MODULE} required;"}, "lacks a SASL mechanism"),
        ({"sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-256"}, "GSSAPI is not supported and not offered"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", **USERS}, "PLAIN without TLS sends passwords in clear"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER", TOKENS: "true"}, "lets in everybody"),
    ],
)
def test_dangerous_or_ignored_settings_cause_one_line(changes: dict[str, str], why: str) -> None:
    lines = [line for line in with_settings(changes).warnings() if why in line]
    assert len(lines) == 1
    assert "xyzzy" not in lines[0]


def test_settings_of_a_listener_and_mechanism_are_not_listed_as_without_effect() -> None:
    changes = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        **USERS,
        f"{PREFIX}.plain.connections.max.reauth.ms": "1",
    }
    assert not any("without effect" in line for line in with_settings(changes).warnings())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("principal.builder.class", "os:system"),
        (f"{PREFIX}.principal.builder.class", "os:system"),
        ("sasl.server.callback.handler.class", "os:system"),
        (f"{PREFIX}.plain.sasl.server.callback.handler.class", "os:system"),
        ("sasl.oauthbearer.jwks.endpoint.url", "http://169.254.169.254/"),
        (f"{PREFIX}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "http://169.254.169.254/"),
    ],
)
def test_hooks_and_urls_are_never_taken_from_a_request(name: str, value: str) -> None:
    with pytest.raises(KafkaError, match=r"own file|cannot be changed while the broker runs"):
        check_broker(with_settings({}), {name: value}, per_broker=True)


def test_a_request_names_no_class_for_a_listener_with_a_dot_in_its_name() -> None:
    config = BrokerConfig(
        {
            "log.dirs": "/nowhere",
            "listeners": "INSIDE://127.0.0.1:0,A.B://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,A.B:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    )
    with pytest.raises(KafkaError, match="own file"):
        check_broker(config, {"listener.name.a.b.principal.builder.class": "os:system"}, per_broker=True)


# Hooks: this module itself is imported by name.


class Checker:
    """A hook of an operator that checks passwords."""

    def __init__(self, options: dict[str, str]) -> None:
        self.suffix = options["suffix"]

    def authenticate(self, user: str, password: str) -> bool:
        if user == "broken":
            raise RuntimeError("the directory is away")
        return password == user + self.suffix


class Tokens:
    """A hook of an operator that checks OAUTHBEARER tokens."""

    def __init__(self, options: dict[str, str]) -> None:
        pass

    def validate(self, token: str) -> tuple[str, int]:
        assert threading.current_thread().name.startswith("kafkapy-login")
        if token.startswith("user-"):
            return token, 2**50
        raise ValueError("unknown")


class Builder:
    """A hook of an operator that makes principals."""

    def build(self, context: Any) -> str:
        assert (context.listener, context.protocol, context.mechanism) == ("CLIENT", "SASL_PLAINTEXT", "PLAIN")
        assert context.address == "127.0.0.1"
        return f"Person:{context.user}" if context.user != "nobody" else "nothing"


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    (tmp_path / "operators_hooks.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name: f"operators_hooks:{name}"


def test_classes_in_python_check_passwords_and_make_principals(
    tmp_path: Path, hooks: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import log_in, principal

    caplog.set_level(logging.WARNING)
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "principal.builder.class": hooks("Builder"),
        "listener.name.client.plain.sasl.server.callback.handler.class": hooks("Checker"),
        "listener.name.client.plain.sasl.jaas.config": f'{PLAIN_MODULE} required suffix="!";',
        "connection.failed.authentication.delay.ms": "0",
    }
    server = start_broker(tmp_path / "data", **settings)
    try:
        with Wire(server.bootstrap_servers) as wire:
            log_in(wire, "PLAIN", 2, "alice", "alice!")
            assert principal(wire) == "Person:alice"
        for user, password in (("alice", "alice"), ("broken", "x"), ("nobody", "nobody!")):
            with Wire(server.bootstrap_servers) as wire:
                assert log_in(wire, "PLAIN", 2, user, password).error_code
                assert wire.closed()
        assert "the directory is away" in caplog.text
        # Lines with reasons are a few per second; a traceback for each failed login would fill the disk.
        assert not [record for record in caplog.records if record.exc_info and record.levelno > logging.DEBUG]
    finally:
        server.stop()


def test_tokens_are_checked_on_the_login_pool_only(tmp_path: Path, hooks: Callable[[str], str]) -> None:
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import AUTHENTICATE, begin, principal

    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.client.oauthbearer.sasl.server.callback.handler.class": hooks("Tokens"),
    }
    server = start_broker(tmp_path / "data", **settings)
    try:
        with Wire(server.bootstrap_servers) as wire:
            begin(wire, "OAUTHBEARER")
            answer = wire.call(AUTHENTICATE, 2, auth_bytes=first_message("user-7"))
            assert (answer.error_code, answer.auth_bytes) == (0, b"")
            assert principal(wire) == "User:user-7"
        with Wire(server.bootstrap_servers) as wire:
            begin(wire, "OAUTHBEARER")
            answer = wire.call(AUTHENTICATE, 2, auth_bytes=first_message("other"))
            assert answer.auth_bytes == b'{"status":"invalid_token"}'
    finally:
        server.stop()


def test_a_login_that_finds_too_many_waiting_is_closed_without_an_error(
    tmp_path: Path, hooks: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import AUTHENTICATE, begin, principal

    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.client.oauthbearer.sasl.server.callback.handler.class": hooks("Tokens"),
        "connections.max.reauth.ms": "600000",
        "connection.failed.authentication.delay.ms": "0",
    }
    server = start_broker(tmp_path / "data", **settings)
    try:
        with Wire(server.bootstrap_servers) as early, Wire(server.bootstrap_servers) as late:
            begin(early, "OAUTHBEARER")
            assert early.call(AUTHENTICATE, 2, auth_bytes=first_message("user-7")).error_code == 0
            monkeypatch.setattr(steps, "MOST_WAITING", 0)
            for wire in (early, late):
                begin(wire, "OAUTHBEARER")
                wire.send(AUTHENTICATE, 2, auth_bytes=first_message("user-7"))
                assert wire.closed()
        monkeypatch.undo()
        with Wire(server.bootstrap_servers) as wire:
            begin(wire, "OAUTHBEARER")
            assert wire.call(AUTHENTICATE, 2, auth_bytes=first_message("user-7")).error_code == 0
            assert principal(wire) == "User:user-7"
    finally:
        server.stop()


def test_nothing_is_checked_for_a_connection_that_was_closed_meanwhile() -> None:
    checked = []

    class Pool:
        depth = 0

        def submit(self, fn: Callable[..., object], *arguments: Any) -> None:
            fn(*arguments)

    class Gone:
        closed = True

    mechanism = OAuthServer(lambda token: checked.append(token))  # type: ignore[arg-type, func-returns-value]
    exchange = steps.Exchange(None, mechanism, Pool())  # type: ignore[arg-type]
    exchange.take(Gone(), first_message("t"), checked.append)  # type: ignore[arg-type]
    assert not checked


def test_the_authority_of_a_providers_url_is_in_the_jaas_line(tmp_path: Path) -> None:
    options = f'ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path / "none.pem"}"'
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "https://127.0.0.1:1/keys",
        "listener.name.client.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required {options};",
    }
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        start_broker(tmp_path / "data", **settings)


def test_a_class_that_cannot_be_used_refuses_the_start(tmp_path: Path, hooks: Callable[[str], str]) -> None:
    for name in ("operators_hooks:Missing", "no_such_module:Class"):
        with pytest.raises(ConfigError, match="cannot be used"):
            start_broker(tmp_path / "data", **SASL, principal_builder_class=name)


def test_mechanisms_and_users_change_while_the_broker_runs(tmp_path: Path) -> None:
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import begin, log_in

    server = start_broker(tmp_path, **SASL, password_encoder_secret="s")
    try:
        with Wire(server.bootstrap_servers) as wire:
            assert begin(wire, "PLAIN").mechanisms == ["SCRAM-SHA-256"]
        alterations = [
            (f"{PREFIX}.plain.sasl.jaas.config", SET, f'{PLAIN_MODULE} required user_alice="xyzzy";'),
            (f"{PREFIX}.sasl.enabled.mechanisms", SET, "SCRAM-SHA-256,PLAIN"),
        ]
        server.services.dynamic_config.alter(
            lambda current: broker_operations(current, alterations), per_broker=True, validate_only=False
        )
        with Wire(server.bootstrap_servers) as wire:
            assert not log_in(wire, "PLAIN", 2, "alice", "xyzzy").error_code
        bad = [(f"{PREFIX}.plain.sasl.jaas.config", SET, "nonsense xyzzy")]
        with pytest.raises(KafkaError, match="login module") as refused:
            server.services.dynamic_config.alter(
                lambda current: broker_operations(current, bad), per_broker=True, validate_only=False
            )
        assert "xyzzy" not in refused.value.message
    finally:
        server.stop()


def test_a_password_that_was_changed_does_not_extend_a_session(tmp_path: Path) -> None:
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import log_in

    jaas = f"{PREFIX}.plain.sasl.jaas.config"
    settings = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", "connections.max.reauth.ms": "600000"}
    settings["connection.failed.authentication.delay.ms"] = "0"
    settings[jaas] = f'{PLAIN_MODULE} required user_alice="old";'
    server = start_broker(tmp_path, **settings, password_encoder_secret="s")
    try:
        with Wire(server.bootstrap_servers) as one, Wire(server.bootstrap_servers) as other:
            for wire in (one, other):
                assert not log_in(wire, "PLAIN", 2, "alice", "old").error_code
            change = [(jaas, SET, f'{PLAIN_MODULE} required user_alice="new";')]
            server.services.dynamic_config.alter(
                lambda current: broker_operations(current, change), per_broker=True, validate_only=False
            )
            assert not log_in(one, "PLAIN", 2, "alice", "new").error_code
            assert log_in(other, "PLAIN", 2, "alice", "old").error_code == Errors.SASL_AUTHENTICATION_FAILED
            assert other.closed()
    finally:
        server.stop()


def test_the_users_of_plain_may_be_a_stored_setting_only(tmp_path: Path) -> None:
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import log_in

    settings = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", "password.encoder.secret": "s"}
    with pytest.raises(ConfigError, match="needs users for PLAIN"):
        start_broker(tmp_path, **settings)
    server = start_broker(tmp_path, broker_id=0, password_encoder_secret="s")
    change = [(f"{PREFIX}.plain.sasl.jaas.config", SET, USERS[f"{PREFIX}.plain.sasl.jaas.config"])]
    server.services.dynamic_config.alter(
        lambda current: broker_operations(current, change), per_broker=True, validate_only=False
    )
    server.stop()
    server = start_broker(tmp_path, broker_id=0, **settings)
    try:
        with Wire(server.bootstrap_servers) as wire:
            assert not log_in(wire, "PLAIN", 2, "a", "xyzzy").error_code
    finally:
        server.stop()


def test_the_last_users_of_plain_are_not_taken_away(tmp_path: Path) -> None:
    """A listener cannot have PLAIN without users, so the change would fail and the old users could still log in."""
    from tests.harness.wire import Wire
    from tests.server.test_sasl_logins import begin

    jaas, enabled = f"{PREFIX}.plain.sasl.jaas.config", f"{PREFIX}.sasl.enabled.mechanisms"
    server = start_broker(tmp_path, **SASL, password_encoder_secret="s")

    def alter(*operations: Any) -> None:
        server.services.dynamic_config.alter(
            lambda current: broker_operations(current, operations), per_broker=True, validate_only=False
        )

    try:
        alter((jaas, SET, USERS[jaas]), (enabled, SET, "SCRAM-SHA-256,PLAIN"))
        with pytest.raises(KafkaError, match="needs users for PLAIN") as refused:
            alter((jaas, DELETE, None))
        assert refused.value.code == Errors.INVALID_REQUEST
        assert jaas in server.services.configs.broker(server.services.broker_id)
        alter((enabled, DELETE, None), (jaas, DELETE, None))
        with Wire(server.bootstrap_servers) as wire:
            assert begin(wire, "PLAIN").mechanisms == ["SCRAM-SHA-256"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    "change",
    [
        [(f"{PREFIX}.scram-sha-256.sasl.jaas.config", DELETE, None)],
        [("sasl.mechanism.inter.broker.protocol", SET, "SCRAM-SHA-512")],
    ],
    ids=["its JAAS line", "its mechanism"],
)
def test_the_login_between_brokers_is_not_taken_away(change: list[tuple[str, int, str | None]]) -> None:
    """Without its login, this broker could not connect to the others."""
    file = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512", "password.encoder.secret": "s"}
    login = {f"{PREFIX}.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="xyzzy";'}
    alone = BrokerConfig(file, {}, login)
    check_broker(alone, broker_operations(login, change), per_broker=True)
    config = BrokerConfig({**file, "zookeeper.connect": "h:1"}, {}, login)
    with pytest.raises(KafkaError, match="must have username and password") as refused:
        check_broker(config, broker_operations(login, change), per_broker=True)
    assert refused.value.code == Errors.INVALID_REQUEST
    assert "xyzzy" not in refused.value.message
    check_broker(config, {**login, "message.max.bytes": "5"}, per_broker=True)


def test_a_login_between_brokers_that_is_missing_already_refuses_no_other_change() -> None:
    config = with_settings({"password.encoder.secret": "s", "zookeeper.connect": "h:1"})
    check_broker(config, {"message.max.bytes": "5"}, per_broker=True)


def test_a_missing_key_file_refuses_the_start(tmp_path: Path) -> None:
    url = (tmp_path / "keys.json").as_uri()
    settings = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER"}
    with pytest.raises(ConfigError, match="cannot be read"):
        start_broker(tmp_path / "data", **settings, sasl_oauthbearer_jwks_endpoint_url=url)
