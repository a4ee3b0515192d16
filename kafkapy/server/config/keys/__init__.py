"""The definitions of all broker settings: those of Apache Kafka 3.9 and kafkapy's own, one table for each family.

BROKER_KEYS maps each setting's name to its definition. Names, types, defaults, rules, importance and update modes are
Kafka's (AbstractKafkaConfig, DynamicBrokerConfig), except for the settings in DEFAULTS_HERE and READ_ONLY_HERE.
"""

from __future__ import annotations

from typing import Any

from kafkapy.runtime.config_def import HIDDEN, LONG_MAX, ConfigKey, ConfigType, Range, UpdateMode, key_table
from kafkapy.security.sasl.errors import MECHANISMS
from kafkapy.server.config.keys import (
    coordinator,
    general,
    kraft,
    log,
    metrics,
    network,
    own,
    remote,
    replication,
    security,
    ssl,
    zookeeper,
)
from kafkapy.server.config.keys.row import MEDIUM, Row

FAMILIES = (general, network, log, replication, coordinator, security, ssl, metrics, zookeeper, kraft, remote, own)

# One network thread is fastest because Python threads share the GIL.
DEFAULTS_HERE: dict[str, Any] = {
    "num.network.threads": 1,
    # Kafka: 102400, which one sendfile call fills. Twice as much gives a consumer a third more throughput, at less CPU.
    "socket.send.buffer.bytes": 204800,
    # Kafka: 102400. A receive buffer sized by the kernel halves the CPU time of large produce requests.
    "socket.receive.buffer.bytes": -1,
    # Kafka: 65536, so that a response of 1 MiB wakes leader and follower 16 times. Sized by the kernel, a follower that
    # catches up needs a fifth to a third less CPU time.
    "replica.socket.receive.buffer.bytes": -1,
    # Kafka: 50. When 1,000 clients connect at once, more than half find the backlog full and retry a second later.
    "socket.listen.backlog.size": 4096,
}

# Kafka can change these settings at run time; this broker has to be restarted.
READ_ONLY_HERE = frozenset(
    {
        "advertised.listeners",
        "background.threads",
        "listener.security.protocol.map",
        "listeners",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
    }
)

_MODES = {"C": UpdateMode.CLUSTER_WIDE, "B": UpdateMode.PER_BROKER}


def _key(row: Row) -> ConfigKey:
    name, type, default, validator, importance, flags, doc = row
    mode = UpdateMode.READ_ONLY
    if name not in READ_ONLY_HERE:
        mode = _MODES.get(flags.replace("E", "").replace("I", ""), mode)
    default = DEFAULTS_HERE.get(name, default)
    return ConfigKey(
        name, type, default, validator, importance, doc, mode=mode, effect="E" in flags, internal="I" in flags
    )


BROKER_KEYS: dict[str, ConfigKey] = key_table(_key(row) for family in FAMILIES for row in family.ROWS)

# Settings that exist only as dynamic ones (DynamicConfig.Broker). In a broker's file they have no effect.
DYNAMIC_ONLY_KEYS: dict[str, ConfigKey] = key_table(
    ConfigKey(name, ConfigType.LONG, LONG_MAX, Range(0), MEDIUM, doc, mode=UpdateMode.CLUSTER_WIDE, effect=False)
    for name, doc in (
        ("leader.replication.throttled.rate", "Most bytes per second that throttled replicas send to followers."),
        ("follower.replication.throttled.rate", "Most bytes per second that throttled replicas fetch from leaders."),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "Most bytes per second moved between log directories."),
    )
)

DEFAULT_VALUES: dict[str, Any] = {name: key.default for name, key in BROKER_KEYS.items()}

# Keys for the same setting; the first that is set takes precedence (DynamicBrokerConfig.brokerConfigSynonyms).
_GROUPS = (
    ("broker.id", "node.id"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_RIVALS: dict[str, tuple[str, ...]] = {name: group for group in _GROUPS for name in group}
# log.flush.scheduler.interval.ms is the fallback of log.flush.interval.ms, but also has an effect of its own. broker.id
# and node.id are not synonyms here: both always have a value.
_SYNONYMS: dict[str, tuple[str, ...]] = {
    **{name: group for group in _GROUPS[1:] for name in group},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}

LISTENER_PREFIX = "listener.name."
_MECHANISM_KEYS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
# The first part of SETTING in a listener's setting of one SASL mechanism.
_MECHANISMS = frozenset(name.lower() for name in (*MECHANISMS, "GSSAPI"))


def listener_base(name: str) -> str | None:
    """Return the SETTING part of a name `listener.name.NAME[.MECHANISM].SETTING`; None if the name has another form."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, dot, base = name[len(LISTENER_PREFIX) :].partition(".")
    if not dot:
        return None
    mechanism, _, of_mechanism = base.partition(".")
    if mechanism in _MECHANISMS:
        return of_mechanism
    return next((key for key in _MECHANISM_KEYS if base.endswith(key)), base)


def in_lower_case(name: str) -> str:
    """Return the name of a listener's setting with the listener and the SASL mechanism in lower case, as only such
    names are looked up (ListenerName.configPrefix). Any other name is returned as it is."""
    base = listener_base(name)
    return name if base is None else name.removesuffix(base).lower() + base


def synonyms(name: str) -> tuple[str, ...]:
    """Return the keys that may provide the value of the broker setting `name`, in order of precedence."""
    base = listener_base(name)
    if base is not None:
        return (name, base)
    return _SYNONYMS.get(name, (name,))


def rivals(name: str) -> tuple[str, ...]:
    """Return all keys for the same setting as `name`, including `name`; () if the setting has no other key.

    If a source of higher precedence sets one of these keys, the values of the others from lower sources are ignored.
    """
    return _RIVALS.get(name, ())


def key_of(name: str) -> ConfigKey | None:
    """Return the definition of the broker setting `name`, or None if the name is unknown.

    A name `listener.name.NAME.SETTING` gives the definition of SETTING.
    """
    key = BROKER_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name)
    if key is None:
        base = listener_base(name)
        key = BROKER_KEYS.get(base) if base is not None else None
    return key


def shown(name: str, text: str) -> str:
    """Return `text`, the value of the setting `name`, as log lines and messages show it.

    For a password or an unknown setting, the result is a placeholder.
    """
    key = key_of(name)
    return HIDDEN if key is None or key.sensitive else text
