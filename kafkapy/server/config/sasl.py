"""The settings of SASL listeners: which mechanisms a listener offers, and with what users, keys and limits.

Settings are looked up as in Kafka: `listener.name.NAME.MECHANISM.SETTING` (in lower case) before
`listener.name.NAME.SETTING` before `SETTING`. A JAAS line counts only with listener and mechanism (JaasContext).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.extras import how_to_install
from kafkapy.runtime.config_def import HIDDEN, ConfigError
from kafkapy.security.sasl.errors import MECHANISMS, SaslSettingError
from kafkapy.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from kafkapy.security.sasl.plain import PlainUsers
from kafkapy.security.sasl.urls import file_of_url
from kafkapy.server.config.keys import LISTENER_PREFIX
from kafkapy.server.config.listeners import SASL_PROTOCOLS, Listener

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

JAAS = "sasl.jaas.config"
ENABLED = "sasl.enabled.mechanisms"
CALLBACKS = "sasl.server.callback.handler.class"
BUILDER = "principal.builder.class"
REAUTH = "connections.max.reauth.ms"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED = "kafkapy.oauthbearer.unsecured.tokens.enable"
INTER_BROKER = "sasl.mechanism.inter.broker.protocol"

ONLY_IN_FILE = "may name a class in Python only in the broker's own file"
DEFAULT_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
# Kafka's own classes, which stand for what is built in here.
BUILT_IN_CALLBACKS = {
    "PLAIN": ("org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",),
    "SCRAM-SHA-256": ("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",),
    "SCRAM-SHA-512": ("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",),
    "OAUTHBEARER": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    ),
}
_MODULE_OF = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTH_MODULE,
}
_HOOKED = frozenset({"PLAIN", "OAUTHBEARER"})  # mechanisms whose callbacks may be a class in Python


class MechanismSettings(NamedTuple):
    """One mechanism of one listener.

    `options` are those of its JAAS line, {} without one. `hook` is MODULE:CLASS of the class that checks passwords or
    tokens, "" for what is built in. `max_reauth_ms` 0: sessions never expire by themselves.
    """

    name: str
    options: Mapping[str, str]
    hook: str
    max_reauth_ms: int


class SaslSettings(NamedTuple):
    """A SASL listener: its mechanisms by name, in order; `builder` is MODULE:CLASS of a principal builder, or ""."""

    listener: str
    protocol: str
    mechanisms: Mapping[str, MechanismSettings]
    builder: str
    largest_frame: int
    failure_delay_s: float


def sasl_settings(config: BrokerConfig, listener: Listener) -> SaslSettings:
    """Return the SASL settings of a listener. Raise ConfigError if one is invalid or missing."""
    return SaslSettings(
        listener.name,
        listener.protocol,
        {name: _mechanism(config, listener.name, name) for name in _enabled(config, listener.name)},
        _hook(config, listener.name, BUILDER, "", (DEFAULT_BUILDER,)),
        config.of_listener(listener.name, "sasl.server.max.receive.size"),
        config["connection.failed.authentication.delay.ms"] / 1000,
    )


def check(config: BrokerConfig) -> None:
    """Raise ConfigError if a setting of a SASL listener, or of the login of brokers at each other, is invalid."""
    for listener in config.listeners:
        if listener.protocol in SASL_PROTOCOLS:
            sasl_settings(config, listener)
        if listener.name == config.inter_broker_listener and listener.protocol in SASL_PROTOCOLS:
            _check_inter_broker(config, listener)


def warnings(config: BrokerConfig) -> list[str]:
    """Return lines to log at the start about SASL settings that are ignored or dangerous."""
    listeners = [listener for listener in config.listeners if listener.protocol in SASL_PROTOCOLS]
    lines = []
    ignored = [name for name in config.static_values if name.endswith(JAAS) and not _has_mechanism(name)]
    if ignored:
        lines.append(
            f"{', '.join(sorted(ignored))}: ignored, because the name lacks a SASL mechanism; in a broker it is "
            f"listener.name.NAME.scram-sha-256.{JAAS}, in lower case"
        )
    for listener in listeners:
        enabled = config.of_listener(listener.name, ENABLED)
        if "GSSAPI" in enabled:
            lines.append(f"listener {listener.name}: GSSAPI is not supported and not offered to clients")
        if "PLAIN" in enabled and listener.protocol == "SASL_PLAINTEXT":
            lines.append(f"listener {listener.name}: PLAIN without TLS sends passwords in clear")
        if "OAUTHBEARER" in enabled and config[UNSECURED]:
            lines.append(f"listener {listener.name}: {UNSECURED} lets in everybody, under any name")
    return lines


def given(config: BrokerConfig) -> dict[str, str]:
    """Return the texts of all settings that the mechanisms of listeners may depend on, by name."""
    everything = {**config.static_values, **config.dynamic_default, **config.dynamic_broker}
    return {
        name: text
        for name, text in everything.items()
        if "sasl." in name or name.endswith((BUILDER, REAUTH, UNSECURED))
    }


def is_hook(value: str) -> bool:
    """Return True if the value names a class in Python, as MODULE:CLASS."""
    return ":" in value


def load_hook(key: str, value: str, *arguments: Any) -> Any:
    """Return a new instance of the class that `value`, the value of the setting `key`, names as MODULE:CLASS.

    Raise ConfigError if it cannot be imported or instantiated.
    """
    module, _, name = value.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        raise ConfigError(key, value, f"the class cannot be used: {type(error).__name__}: {error}") from error


def full_name(listener: str, name: str, mechanism: str = "") -> str:
    """Return the name of a setting of one listener, and of one mechanism if it is given."""
    middle = f"{mechanism.lower()}." if mechanism else ""
    return f"{LISTENER_PREFIX}{listener.lower()}.{middle}{name}"


def _enabled(config: BrokerConfig, listener: str) -> list[str]:
    """Return the mechanisms that a listener offers. Raise ConfigError if one is not supported, or if there is none."""
    given = config.of_listener(listener, ENABLED)
    wanted = list(dict.fromkeys(name.strip().upper() for name in given if name.strip().upper() != "GSSAPI"))
    key = full_name(listener, ENABLED)
    for name in wanted:
        if name not in MECHANISMS:
            raise ConfigError(key, ",".join(given), f"{name} is not supported; use {', '.join(MECHANISMS)}")
    if not wanted:
        raise ConfigError(
            key,
            ",".join(given),
            f"GSSAPI (Kafka's default) is not supported; listener {listener} needs one of {', '.join(MECHANISMS)}",
        )
    return wanted


def _mechanism(config: BrokerConfig, listener: str, name: str) -> MechanismSettings:
    key = full_name(listener, JAAS, name)
    line = config.given(key)
    options: Mapping[str, str] = {}
    if line is not None:
        try:
            module, options = parse_jaas(key, line)
        except SaslSettingError as error:
            raise ConfigError(key, HIDDEN, str(error).removeprefix(key).strip()) from None
        if module != _MODULE_OF[name]:
            raise ConfigError(key, HIDDEN, f"has another login module than {_MODULE_OF[name]}")
    hook = _hook(config, listener, CALLBACKS, name, BUILT_IN_CALLBACKS[name])
    if hook and name not in _HOOKED:
        raise ConfigError(
            full_name(listener, CALLBACKS, name), hook, "may be a class in Python for PLAIN and OAUTHBEARER"
        )
    if name == "PLAIN" and not hook and not len(PlainUsers(options)) and not _may_be_stored(config, key):
        raise no_plain_users(config, key)
    if name == "OAUTHBEARER" and not hook:
        _check_tokens(config, listener)
        if ignored := [option for option in options if option.startswith("unsecuredValidator") and config[UNSECURED]]:
            raise ConfigError(key, HIDDEN, f"has {', '.join(ignored)}, which is not supported")
    reauth_ms: int = config.of_listener(listener, REAUTH, name)
    return MechanismSettings(name, options, hook, max(0, reauth_ms))


def no_plain_users(config: BrokerConfig, key: str) -> ConfigError:
    """Return the error of a listener with PLAIN whose JAAS line, the value of `key`, has no users."""
    shown = None if config.given(key) is None else HIDDEN
    return ConfigError(key, shown, f'needs users for PLAIN: {PLAIN_MODULE} required user_NAME="PASSWORD";')


def no_inter_broker_user(config: BrokerConfig) -> ConfigError | None:
    """Return the error of a broker without a user name and a password for its login at other brokers. Return None if it
    has them, or needs none."""
    listener, mechanism = config.inter_broker_listener, config[INTER_BROKER].upper()
    has_login = config.protocol_of(listener) in SASL_PROTOCOLS and mechanism != "OAUTHBEARER"
    if not has_login or not config["zookeeper.connect"]:
        return None
    options = _mechanism(config, listener, mechanism).options
    if options.get("username") and options.get("password"):
        return None
    key = full_name(listener, JAAS, mechanism)
    return ConfigError(
        key,
        HIDDEN if config.given(key) is not None else None,
        f"must have username and password, with which this broker logs in to others: {_MODULE_OF[mechanism]} "
        'required username="NAME" password="PASSWORD";',
    )


def _may_be_stored(config: BrokerConfig, key: str) -> bool:
    """Return True if a password that is not in the file may be among the dynamic settings, which are not read yet when
    the file is checked."""
    return config.given(key) is None and config["password.encoder.secret"] is not None


def _check_tokens(config: BrokerConfig, listener: str) -> None:
    key = full_name(listener, JWKS, "OAUTHBEARER")
    url = config.of_listener(listener, JWKS, "OAUTHBEARER")
    if config[UNSECURED]:
        if url:
            raise ConfigError(UNSECURED, "true", f"contradicts {JWKS}: signed tokens would not be needed")
        return
    if not url:
        raise ConfigError(key, None, f"OAUTHBEARER needs the URL of the provider's keys here, or {UNSECURED}=true")
    try:
        file_of_url(key, url)
    except SaslSettingError as error:
        raise ConfigError(key, url, str(error).removeprefix(key).strip()) from None
    try:
        import jwt  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(
            key, url, f"needs the libraries PyJWT and cryptography: {how_to_install('security')}"
        ) from None


def _hook(config: BrokerConfig, listener: str, name: str, mechanism: str, built_in: tuple[str, ...]) -> str:
    """Return MODULE:CLASS of a setting that names a class, or "" for what is built in."""
    value: str = config.of_listener(listener, name, mechanism) or ""
    if not value or value in built_in:
        return ""
    if is_hook(value):
        used = config.name_in_use(listener, name, mechanism)
        if config.static_values.get(used, "").strip() != value:
            # `dynamic_keys` refuses such settings by their names, but does not recognise them if the listener's name
            # has a dot. Without this check, a client that may alter settings could have this broker run any function.
            raise ConfigError(used, value, ONLY_IN_FILE)
        return value
    raise ConfigError(
        full_name(listener, name, mechanism),
        value,
        f"is not a class of Kafka that is built in ({', '.join(built_in)}), nor MODULE:CLASS of a class in Python",
    )


def _check_inter_broker(config: BrokerConfig, listener: Listener) -> None:
    mechanism = config[INTER_BROKER].upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(
            INTER_BROKER,
            config[INTER_BROKER],
            f"brokers log in to each other on the listener {listener.name}; set one of {', '.join(MECHANISMS)}",
        )
    if mechanism not in _enabled(config, listener.name):
        raise ConfigError(INTER_BROKER, mechanism, f"must be among {ENABLED} of the listener {listener.name}")
    missing = no_inter_broker_user(config)
    if missing is not None and not _may_be_stored(config, full_name(listener.name, JAAS, mechanism)):
        raise missing


def _has_mechanism(name: str) -> bool:
    """Return True if a JAAS setting has the form listener.name.NAME.MECHANISM.sasl.jaas.config."""
    middle = name.removeprefix(LISTENER_PREFIX).removesuffix(JAAS).strip(".")
    return name.startswith(LISTENER_PREFIX) and middle.rpartition(".")[2].upper() in (*MECHANISMS, "GSSAPI")
