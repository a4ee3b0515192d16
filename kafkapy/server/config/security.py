"""Refuses to start with security settings that this broker does not support.

A warning is not enough: with the server.properties of a secured broker, this broker would be open to everybody, and
its clients would not notice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.keys import key_of, listener_base, shown
from kafkapy.server.config.listeners import SUPPORTED_PROTOCOLS

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

_AUTHORIZATION = "authorization is not supported: this broker lets every client read, change and delete everything"
_AUTHENTICATION = "authentication is not supported: this broker lets every client in without a login"
_ENCRYPTION = "TLS is not supported: this broker sends and takes everything as plain text, and lets every client in"
_BY_NAME = {
    "authorizer.class.name": _AUTHORIZATION,
    "super.users": _AUTHORIZATION,
    "allow.everyone.if.no.acl.found": _AUTHORIZATION,
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
    missing = {name: rule for name, text in config.static_values.items() if (rule := _protection(name, text))}
    if not missing:
        return
    (name, rule), *others = missing.items()
    advice = "; remove it if that is acceptable"
    if others:
        advice += f", and the other settings of that kind: {', '.join(other for other, _ in others)}"
    raise ConfigError(name, shown(name, config.static_values[name]), rule + advice)


def check_protocol(key: str, value: str, protocol: str) -> None:
    """Raise ConfigError unless the security protocol of a setting is supported."""
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(
            key,
            value,
            f"{protocol} is not supported: this broker only speaks PLAINTEXT, without encryption and without a login; "
            "use PLAINTEXT if that is acceptable",
        )


def _protection(name: str, text: str) -> str | None:
    """Return what the broker does without the protection that a setting asks for; None if it asks for none."""
    base = listener_base(name)
    # In a listener's setting a SASL mechanism may come first: listener.name.NAME.scram-sha-256.sasl.jaas.config.
    family = _FAMILY.match(name) if base is None else _FAMILY.search(base)
    rule = _BY_NAME.get(base or name) or (_BY_FAMILY[family[1]] if family else None)
    if rule is None or not text.strip():
        return None
    key = key_of(name)
    return rule if key is None or key.parse(text) != key.default else None
