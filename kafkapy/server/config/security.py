"""Refuses settings that restrict or protect what clients do, where this broker does not support the restriction.

A warning is not enough: with the settings of a secured broker, this broker would be open to everybody, and its clients
would not notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.keys import LISTENER_PREFIX, key_of, listener_base, shown
from kafkapy.server.config.listeners import SUPPORTED_PROTOCOLS

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

_AUTHORIZATION = "authorization is not supported: this broker lets every client read, change and delete everything"
_AUTHENTICATION = "authentication is not supported: this broker lets every client in without a login"
_ENCRYPTION = "TLS is not supported: this broker sends and takes everything as plain text, and lets every client in"
_POLICIES = "policies in Java are not supported: this broker makes every topic and every change that a client asks for"
_BY_NAME = {
    "authorizer.class.name": _AUTHORIZATION,
    "super.users": _AUTHORIZATION,
    "allow.everyone.if.no.acl.found": _AUTHORIZATION,
    "create.topic.policy.class.name": _POLICIES,
    "alter.config.policy.class.name": _POLICIES,
    "principal.builder.class": _AUTHENTICATION,
    "connections.max.reauth.ms": _AUTHENTICATION,
    "delegation.token.secret.key": _AUTHENTICATION,
    "delegation.token.master.key": _AUTHENTICATION,
}
_BY_FAMILY = {"sasl": _AUTHENTICATION, "ssl": _ENCRYPTION}
_FAMILY = re.compile(r"\b(sasl|ssl)\.")


def check(config: BrokerConfig) -> None:
    """Raise ConfigError if a setting in the file or on the command line asks for protection that is not supported.

    An empty value and Kafka's default are allowed: they ask for no protection.
    """
    missing = _missing(config.static_values)
    if missing:
        _refuse(config.static_values, missing, "; remove it if that is acceptable")


def check_stored(config: BrokerConfig, stored: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigError if a stored dynamic setting asks for protection that is not supported.

    `stored` has the dynamic settings by the path of their node; Apache Kafka may have written them. Two kinds of
    settings are allowed. Settings of a listener that this broker does not have protect nothing here, and Kafka may need
    them again. A setting that the file or the command line sets to a value without protection has been accepted by the
    operator.
    """
    ours = tuple(f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in config.listeners)
    for path, values in stored.items():
        missing = [
            name
            for name in _missing(values)
            if name not in config.static_values and (listener_base(name) is None or name.lower().startswith(ours))
        ]
        if missing:
            advice = (
                f"; it is stored as a dynamic setting, in {path}: if that is acceptable, start with an empty value or "
                "Kafka's default for it (-o), and remove it with kafkapy configs alter --delete"
            )
            _refuse(values, missing, advice)


def _missing(values: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that ask for protection which this broker does not support."""
    return [name for name, text in values.items() if protection(name, text) is not None]


def _refuse(values: Mapping[str, str], missing: Sequence[str], advice: str) -> NoReturn:
    name, *others = missing
    if others:
        advice += f", and the other settings of that kind: {', '.join(others)}"
    raise ConfigError(name, shown(name, values[name]), f"{protection(name, values[name])}{advice}")


def check_protocol(key: str, value: str, protocol: str) -> None:
    """Raise ConfigError, which names the setting `key`, unless this broker supports the security protocol."""
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(
            key,
            value,
            f"{protocol} is not supported: this broker only speaks PLAINTEXT, without encryption and without a login; "
            "use PLAINTEXT if that is acceptable",
        )


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
    return rule if key is None or key.parse(text) != key.default else None
