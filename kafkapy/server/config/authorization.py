"""The settings of authorization: the authorizer, and the super users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.acls.bindings import is_principal
from kafkapy.server.config.listeners import SASL_PROTOCOLS
from kafkapy.server.config.sasl import ONLY_IN_FILE, is_hook

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
TIMEOUT = "kafkapy.authorizer.timeout.ms"
EVERYONE = "allow.everyone.if.no.acl.found"

# Kafka's classes, for ZooKeeper and for KRaft: both mean the authorizer with ACLs that is built in.
ACL_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)


def has_acls(config: BrokerConfig) -> bool:
    """Return True if the broker authorizes by ACLs."""
    return config[AUTHORIZER] in ACL_AUTHORIZERS


def hook_of(config: BrokerConfig) -> str:
    """Return MODULE:CLASS of the operator's authorizer, or "" if there is none."""
    value: str = config[AUTHORIZER]
    return value if is_hook(value) else ""


def super_users(config: BrokerConfig) -> frozenset[str]:
    """Return the principals that may do everything. They are separated by `;`, because names may have commas. Raise
    ConfigError if one is not TYPE:NAME."""
    text = config[SUPER_USERS]
    users = [one.strip() for one in text.split(";")] if text.strip() else []
    while users and not users[-1]:
        users.pop()
    for user in users:
        if not is_principal(user):
            raise ConfigError(SUPER_USERS, text, f"{user!r} is not TYPE:NAME, such as User:alice; separate users by ;")
    return frozenset(users)


def check(config: BrokerConfig) -> None:
    """Raise ConfigError if the authorizer is unknown or cannot be used with the other settings, or if a super user is
    not a principal."""
    value = config[AUTHORIZER]
    if value and not is_hook(value) and value not in ACL_AUTHORIZERS:
        raise ConfigError(
            AUTHORIZER,
            value,
            f"is not an authorizer of Kafka that is built in ({', '.join(ACL_AUTHORIZERS)}), nor MODULE:CLASS of a "
            "class in Python",
        )
    if is_hook(value) and config.static_values.get(AUTHORIZER, "").strip() != value:
        raise ConfigError(AUTHORIZER, value, ONLY_IN_FILE)
    if is_hook(value) and config["kafkapy.kafka07.properties"]:
        raise ConfigError(
            AUTHORIZER,
            value,
            "a class in Python may take long to answer, and clients of Kafka 0.7 (kafkapy.kafka07.properties) are not "
            "served by threads that wait: use AclAuthorizer",
        )
    super_users(config)


def warnings(config: BrokerConfig) -> list[str]:
    """Return lines to log at the start about what is not protected."""
    if config[AUTHORIZER]:
        if is_hook(config[AUTHORIZER]) and (config[SUPER_USERS] or config[EVERYONE]):
            return [f"{SUPER_USERS} and {EVERYONE} are left to the authorizer {config[AUTHORIZER]}"]
        return []
    if config[SUPER_USERS] or config[EVERYONE]:
        return [
            f"everybody may do everything: {SUPER_USERS} and {EVERYONE} have no effect without {AUTHORIZER}, for "
            f"example {ACL_AUTHORIZERS[0]}"
        ]
    if any(listener.protocol in SASL_PROTOCOLS for listener in config.listeners):
        return [
            f"clients log in, but every user may do everything: set {AUTHORIZER}={ACL_AUTHORIZERS[0]} to authorize them"
        ]
    return []
