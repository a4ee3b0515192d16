"""Refuses settings that restrict or protect what clients do, where this broker does not support the restriction.

A warning is not enough: with the settings of a secured broker, this broker would be open to everybody, and its clients
would not notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.keys import (
    BROKER_KEYS,
    LISTENER_PREFIX,
    in_lower_case,
    key_of,
    listener_base,
    shown,
)
from kafkapy.server.config.listeners import SASL_PROTOCOLS, Listener
from kafkapy.server.config.sasl import BUILDER, is_hook

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

_UNKNOWN_TLS = "this broker does not know this setting of TLS, and cannot protect its clients in that way"
_UNKNOWN_SASL = "this broker does not know this setting of SASL, and cannot protect its clients in that way"
_BUILDER = "only Kafka's default class is built in, and classes in Python can be named as MODULE:CLASS"
_TOKENS = "delegation tokens are not supported"
_KERBEROS = "Kerberos (GSSAPI) is not supported"
_POLICIES = "policies in Java are not supported: this broker makes every topic and every change that a client asks for"
_OTHER_ACLS = "ACLs are read from the broker's own ZooKeeper only"
_QUOTAS = "classes in Java that decide quotas are not supported: this class would limit no client"
_PROVIDERS = (
    "config providers are not supported: a value such as ${file:/run/secrets:password} would itself be the password"
)
_ZOOKEEPER_TLS = "the TLS of connections to ZooKeeper cannot be restricted in this way"
_BY_NAME = {
    "authorizer.zookeeper.url": _OTHER_ACLS,
    "config.providers": _PROVIDERS,
    "client.quota.callback.class": _QUOTAS,
    "create.topic.policy.class.name": _POLICIES,
    "alter.config.policy.class.name": _POLICIES,
    BUILDER: _BUILDER,
    "delegation.token.secret.key": _TOKENS,
    "delegation.token.master.key": _TOKENS,
    "zookeeper.ssl.cipher.suites": _ZOOKEEPER_TLS,
    "zookeeper.ssl.crl.enable": _ZOOKEEPER_TLS,
    "zookeeper.ssl.enabled.protocols": _ZOOKEEPER_TLS,
    "zookeeper.ssl.ocsp.enable": _ZOOKEEPER_TLS,
    "zookeeper.ssl.protocol": _ZOOKEEPER_TLS,  # without enabled.protocols it is the only version that is offered
}
_BY_FAMILY = {"sasl.kerberos": _KERBEROS, "sasl": _UNKNOWN_SASL, "ssl": _UNKNOWN_TLS}
CLIENT_AUTH = "ssl.client.auth"
_ADVICE = "; remove it if that is acceptable"
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1", re.IGNORECASE)
_FAMILY = re.compile(r"\b(sasl\.kerberos|sasl|ssl)\.")


def check(config: BrokerConfig) -> None:
    """Raise ConfigError if a setting in the file or on the command line asks for protection that is not supported, or
    would be ignored because of its spelling.

    An empty value and Kafka's default are allowed: they ask for no protection.
    """
    missing = _missing(config.static_values)
    if missing:
        _refuse(config.static_values, missing, _ADVICE)
    for name, text in config.static_values.items():
        if in_lower_case(name) != name and _is_of(in_lower_case(name), config.listeners):
            raise ConfigError(
                name,
                shown(name, text),
                f"would be ignored, because listeners and mechanisms must be in lower case here: write "
                f"{in_lower_case(name)}, or remove it",
            )
    _check_builders(config)


def check_zookeeper(config: BrokerConfig) -> None:
    """Raise ConfigError if a setting in the file restricts the TLS to ZooKeeper in a way that is not supported. This is
    for commands: for them, the other settings that `check` refuses have no meaning."""
    missing = [name for name in _missing(config.static_values) if _BY_NAME.get(name) is _ZOOKEEPER_TLS]
    if missing:
        _refuse(config.static_values, missing, _ADVICE)


def _check_builders(config: BrokerConfig) -> None:
    """Raise ConfigError if a class in Python is named to make the principals of a listener whose clients do not log
    in."""
    for listener in config.listeners:
        builder = config.of_listener(listener.name, BUILDER)
        if listener.protocol not in SASL_PROTOCOLS and builder and is_hook(builder):
            raise ConfigError(
                config.name_in_use(listener.name, BUILDER),
                builder,
                f"would be ignored on the listener {listener.name}: a class in Python is used with SASL only, so set "
                f"{LISTENER_PREFIX}NAME.{BUILDER} for the listeners with SASL",
            )


def check_stored(config: BrokerConfig, stored: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigError if a stored dynamic setting asks for protection that is not supported.

    `stored` has the dynamic settings by the path of their node; Apache Kafka may have written them. Two kinds of
    settings are allowed. Settings of a listener that this broker does not have protect nothing here, and Kafka may need
    them again. A setting that the file or the command line sets to a value without protection has been accepted by the
    operator.
    """
    for path, values in stored.items():
        missing = [
            name
            for name in _missing(values)
            if name not in config.static_values
            and (listener_base(name) is None or _is_of(name.lower(), config.listeners))
        ]
        if missing:
            advice = (
                f"; it is stored as a dynamic setting, in {path}: if that is acceptable, start with an empty value or "
                "Kafka's default for it (-o), and remove it with kafkapy configs alter --delete"
            )
            _refuse(values, missing, advice)


def _is_of(name: str, listeners: Sequence[Listener]) -> bool:
    """Return True if `name`, in lower case, is the name of a setting of one of the listeners."""
    return name.startswith(tuple(f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in listeners))


def _missing(values: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that ask for protection which this broker does not support."""
    return [name for name, text in values.items() if protection(name, text) is not None]


def _refuse(values: Mapping[str, str], missing: Sequence[str], advice: str) -> NoReturn:
    name, *others = missing
    if others:
        advice += f", and the other settings of that kind: {', '.join(others)}"
    raise ConfigError(name, shown(name, values[name]), f"{protection(name, values[name])}{advice}")


def protection(name: str, text: str) -> str | None:
    """Return a text that says which protection is not supported, if a setting with this value asks for one; None
    otherwise."""
    base = listener_base(name)
    # In a listener's setting a SASL mechanism may come first: listener.name.NAME.scram-sha-256.sasl.jaas.config.
    family = _FAMILY.match(name) if base is None else _FAMILY.search(base)
    rule = _BY_NAME.get(base or name) or (_BY_FAMILY[family[1]] if family else None)
    if rule is None or not text.strip():
        return None
    key = key_of(name)
    if (key is not None and rule in (_UNKNOWN_TLS, _UNKNOWN_SASL)) or (rule is _BUILDER and is_hook(text)):
        return None
    return rule if key is None or key.parse(text) != key.default else None


def tls_settings(config: BrokerConfig, listener: Listener) -> dict[str, Any]:
    """Return the TLS settings of a listener, by their names without a prefix.

    A SASL_SSL listener asks clients for certificates only if `listener.name.NAME.ssl.client.auth` says so, as in Kafka
    (ChannelBuilders).
    """
    names = [name for name in BROKER_KEYS if name.startswith("ssl.") or name == "security.providers"]
    settings = {name: config.of_listener(listener.name, name) for name in names}
    if listener.protocol in SASL_PROTOCOLS and config.name_in_use(listener.name, CLIENT_AUTH) == CLIENT_AUTH:
        settings[CLIENT_AUTH] = "none"
    return settings


def warnings(config: BrokerConfig) -> list[str]:
    """Return lines to log at the start about what is not protected, though the settings look as if it were."""
    lines = []
    others = [
        name
        for name in config.static_values
        if listener_base(name) is not None and not _is_of(name.lower(), config.listeners)
    ]
    if others:
        lines.append(f"settings of listeners that this broker does not have, ignored: {', '.join(sorted(others))}")
    for listener in config.listeners:
        ignores_client_auth = (
            listener.protocol == "SASL_SSL"
            and config[CLIENT_AUTH] != "none"
            and config.name_in_use(listener.name, CLIENT_AUTH) == CLIENT_AUTH
        )
        if ignores_client_auth:
            own = f"{LISTENER_PREFIX}{listener.name.lower()}.{CLIENT_AUTH}"
            lines.append(
                f"{CLIENT_AUTH}={config[CLIENT_AUTH]} does not count for the listener {listener.name}, because its "
                f"protocol is SASL_SSL: set {own} if clients shall need certificates, too"
            )
        is_reachable = not _LOOPBACK.fullmatch(listener.host)
        if not listener.has_tls and is_reachable:
            who = "" if listener.protocol in SASL_PROTOCOLS else ", and its clients need no login"
            lines.append(
                f"listener {listener} is open to other machines in plain text{who}: docs/security.md says how to "
                "protect it"
            )
        asks_nobody = listener.protocol == "SSL" and config.of_listener(listener.name, CLIENT_AUTH) == "none"
        if asks_nobody and is_reachable:
            lines.append(f"listener {listener} lets everybody in: {CLIENT_AUTH} is none, so clients need no login")
    host, _, port = config.kafkapy_metrics_listen.rpartition(":")
    if port and not _LOOPBACK.fullmatch(host.strip("[]")):
        lines.append(f"kafkapy.metrics.listen={host}:{port} shows the metrics to other machines, without a login")
    return lines
