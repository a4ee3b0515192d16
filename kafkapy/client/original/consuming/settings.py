"""The settings of the original consumer, by their property names in Kafka 0.8 and in 0.7.

Source: ConsumerConfig and ZKConfig of Kafka 0.8.2 and 0.7.2.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkapy.client.properties import ClientProperties, is_security
from kafkapy.client.security import PLAINTEXT, Security
from kafkapy.client.security import read_security as read_broker_security
from kafkapy.metadata.zookeeper.properties import SECURITY, read_security
from kafkapy.runtime.config_def import ConfigError, parse_value

log = logging.getLogger(__name__)

# The characters allowed in the name of a znode and in a client id.
_WORD = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)

_LARGEST = 0x7FFFFFFF  # the maximum of Java's int

_NUMBER, _TEXT, _SWITCH = "LONG", "STRING", "BOOLEAN"


class ConsumerSettings(NamedTuple):
    """The original consumer's settings. Times are in ms, sizes in bytes.

    `consumer_timeout_ms` is -1 if streams wait without limit. `trust` has the TLS and SASL settings for ZooKeeper, and
    `security` those for brokers of Kafka 0.8 and later.
    """

    zookeeper_connect: str
    group_id: str
    consumer_id: str | None = None
    client_id: str = ""
    zookeeper_session_timeout_ms: int = 6000
    zookeeper_connection_timeout_ms: int = 6000
    auto_offset_reset: str = "largest"
    auto_commit_enable: bool = True
    auto_commit_interval_ms: int = 60_000
    consumer_timeout_ms: int = -1
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2000
    partition_assignment_strategy: str = "range"
    exclude_internal_topics: bool = True
    fetch_message_max_bytes: int = 1 << 20
    fetch_min_bytes: int = 1
    fetch_wait_max_ms: int = 100
    queued_max_message_chunks: int = 2
    refresh_leader_backoff_ms: int = 200
    socket_timeout_ms: int = 30_000
    offsets_storage: str = "zookeeper"
    offsets_channel_socket_timeout_ms: int = 10_000
    dual_commit_enabled: bool = True
    trust: Mapping[str, Any] = MappingProxyType(read_security({}))
    security: Security = PLAINTEXT

    @property
    def dual_commit(self) -> bool:
        """True if offsets are committed to both Kafka and ZooKeeper, which is the default for offsets.storage=kafka."""
        return self.offsets_storage == "kafka" and self.dual_commit_enabled


# Type and names of each setting: the name since Kafka 0.8 first, then that of 0.7.
_FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "zookeeper_connect": (_TEXT, ("zookeeper.connect", "zk.connect")),
    "group_id": (_TEXT, ("group.id", "groupid")),
    "consumer_id": (_TEXT, ("consumer.id", "consumerid")),
    "client_id": (_TEXT, ("client.id",)),
    "zookeeper_session_timeout_ms": (_NUMBER, ("zookeeper.session.timeout.ms", "zk.sessiontimeout.ms")),
    "zookeeper_connection_timeout_ms": (_NUMBER, ("zookeeper.connection.timeout.ms", "zk.connectiontimeout.ms")),
    "auto_offset_reset": (_TEXT, ("auto.offset.reset", "autooffset.reset")),
    "auto_commit_enable": (_SWITCH, ("auto.commit.enable", "autocommit.enable")),
    "auto_commit_interval_ms": (_NUMBER, ("auto.commit.interval.ms", "autocommit.interval.ms")),
    "consumer_timeout_ms": (_NUMBER, ("consumer.timeout.ms",)),
    "rebalance_max_retries": (_NUMBER, ("rebalance.max.retries", "rebalance.retries.max")),
    "rebalance_backoff_ms": (_NUMBER, ("rebalance.backoff.ms",)),
    "partition_assignment_strategy": (_TEXT, ("partition.assignment.strategy",)),
    "exclude_internal_topics": (_SWITCH, ("exclude.internal.topics",)),
    "fetch_message_max_bytes": (_NUMBER, ("fetch.message.max.bytes", "fetch.size")),
    "fetch_min_bytes": (_NUMBER, ("fetch.min.bytes",)),
    "fetch_wait_max_ms": (_NUMBER, ("fetch.wait.max.ms",)),
    "queued_max_message_chunks": (_NUMBER, ("queued.max.message.chunks", "queuedchunks.max")),
    "refresh_leader_backoff_ms": (_NUMBER, ("refresh.leader.backoff.ms",)),
    "socket_timeout_ms": (_NUMBER, ("socket.timeout.ms",)),
    "offsets_storage": (_TEXT, ("offsets.storage",)),
    "offsets_channel_socket_timeout_ms": (_NUMBER, ("offsets.channel.socket.timeout.ms",)),
    "dual_commit_enabled": (_SWITCH, ("dual.commit.enabled",)),
}
NAMES = tuple(names for _, names in _FIELDS.values())
_WORDS = {
    "auto_offset_reset": ("largest", "smallest"),
    "offsets_storage": ("zookeeper", "kafka"),
    "partition_assignment_strategy": ("range", "roundrobin"),
}
# Settings of Kafka's consumer that have no effect here: requests to the coordinator are retried up to their time limit.
_IGNORED = ("offsets.channel.backoff.ms", "offsets.commit.max.retries", "num.consumer.fetchers")
_MAY_BE_ZERO = ("fetch_wait_max_ms", "rebalance_backoff_ms")


class _Properties(ClientProperties):
    """The consumer's properties. A property given under its old and its new name is a ConfigError."""

    def given_twice(self, new: str, old: str, given: Mapping[str, Any]) -> Exception:
        both = f"{new}={given[new]} and {old}={given[old]} are the same property"
        return ConfigError(old, given[old], f"is the old name of {new}, which is given too: {both}")


def consumer_settings(properties: Mapping[str, Any]) -> ConsumerSettings:
    """Return the settings in `properties`.

    Log a warning for unknown properties. Raises ConfigError for invalid values.
    """
    read = _Properties(properties, names=NAMES)
    values: dict[str, Any] = {"trust": read_security(properties), "security": read_broker_security(read)}
    for field, (kind, (name, *_)) in _FIELDS.items():
        if name in read:
            values[field] = _checked(field, read.called(name), kind, read.text(name))
    for field in ("zookeeper_connect", "group_id"):
        if not values.get(field):
            raise ConfigError(_FIELDS[field][1][0], values.get(field), "must be set")
    known = {present for present, *_ in NAMES} | SECURITY.keys() | set(_IGNORED) | {"security.protocol"}
    for name in sorted(name for name in read if name not in known and not is_security(name)):
        log.warning("the setting %s is not known to this consumer and has no effect", name)
    return ConsumerSettings(**values)


def _checked(field: str, name: str, kind: str, raw: Any) -> Any:
    """Return the value of a setting, converted to the setting's type. Raise ConfigError if the value is not valid."""
    value = parse_value(name, kind, raw)
    if field in _WORDS and value not in _WORDS[field]:
        raise ConfigError(name, raw, f"must be {' or '.join(_WORDS[field])}")
    if field in ("group_id", "consumer_id") and not _WORD.fullmatch(value):
        raise ConfigError(name, raw, "may only have letters, digits and . _ -")
    if kind == _NUMBER and field == "consumer_timeout_ms":
        if value < -1:
            raise ConfigError(name, raw, "must be -1 (no limit) or a time in ms")
    elif kind == _NUMBER and value < (0 if field in _MAY_BE_ZERO else 1):
        raise ConfigError(name, raw, "is too small")
    if kind == _NUMBER and value > _LARGEST:
        raise ConfigError(name, raw, f"is too large: {_LARGEST} at most")
    return value
