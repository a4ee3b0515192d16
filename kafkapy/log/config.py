"""Topic settings: the table of every topic key of Kafka 3.9, and the parsed settings of one log.

A log's settings are the topic's overrides on top of the broker's log.* settings (Kafka's ServerTopicConfigSynonyms,
here TOPIC_SYNONYMS). Sizes are bytes and times milliseconds; for a limit, -1 means no limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kafkapy.log.versions import (
    DEFAULT_FORMAT,
    LATEST,
    METADATA_VERSION_RULE,
    format_can_be_chosen,
    metadata_version,
    newest_format,
    rank,
)
from kafkapy.runtime.config_def import (
    LONG_MAX,
    ConfigError,
    ConfigKey,
    OneOf,
    Range,
    RangeOr,
    Rule,
    Validator,
    key_table,
)
from kafkapy.runtime.config_def import ConfigType as T

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000
MINUTE_MS = 60 * 1000

COMPRESSION_TYPES = OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVELS = RangeOr(1, 9, -1)
LZ4_LEVELS = Range(1, 17)
ZSTD_LEVELS = Range(-131072, 22)
CLEANUP_POLICIES = OneOf("compact", "delete")
TIMESTAMP_TYPES = OneOf("CreateTime", "LogAppendTime")


def _throttled_problem(value: list[str]) -> str | None:
    if "".join(value) == "*" or all(re.fullmatch("([0-9]+:[0-9]+)?", item, re.ASCII) for item in value):
        return None
    return "must be * or a list of PARTITION:BROKER pairs"


THROTTLED_REPLICAS = Rule("[partitionId]:[brokerId],[partitionId]:[brokerId],...", _throttled_problem)

# name, type, default, validator, has an effect here, meaning. Importance is MEDIUM except for one key.
_TOPIC_ROWS: tuple[tuple[str, str, Any, Validator | None, bool, str], ...] = (
    ("cleanup.policy", T.LIST, ["delete"], CLEANUP_POLICIES, True,
     "What happens to old segments: delete removes them by age and size, compact keeps the last value of each key."),
    ("compression.gzip.level", T.INT, -1, GZIP_LEVELS, True, "Level used when compression.type is gzip."),
    ("compression.lz4.level", T.INT, 9, LZ4_LEVELS, True, "Level used when compression.type is lz4."),
    ("compression.type", T.STRING, "producer", COMPRESSION_TYPES, True,
     "Codec of the stored batches; producer: keep the producer's codec."),
    ("compression.zstd.level", T.INT, 3, ZSTD_LEVELS, True, "Level used when compression.type is zstd."),
    ("delete.retention.ms", T.LONG, DAY_MS, Range(0), True, "How long a compacted log keeps its tombstones."),
    ("file.delete.delay.ms", T.LONG, 60000, Range(0), True,
     "Delay between removing a segment from its log and deleting its files."),
    ("flush.messages", T.LONG, LONG_MAX, Range(1), True,
     "Records appended between two fsyncs; 1 makes every acknowledged batch survive a power cut."),
    ("flush.ms", T.LONG, LONG_MAX, Range(0), True,
     "Longest time a record waits for its fsync to begin, if the disk can sync the logs of all topics in that time; "
     "values below 10 count as 10."),
    ("follower.replication.throttled.replicas", T.LIST, [], THROTTLED_REPLICAS, True,
     "Replicas whose incoming replication traffic is throttled."),
    ("index.interval.bytes", T.INT, 4096, Range(0), True, "Bytes of log between two entries of the offset index."),
    ("leader.replication.throttled.replicas", T.LIST, [], THROTTLED_REPLICAS, True,
     "Replicas whose outgoing replication traffic is throttled."),
    ("local.retention.bytes", T.LONG, -2, Range(-2), False,
     "Size kept on local disk if older segments are in remote storage; -2: as retention.bytes."),
    ("local.retention.ms", T.LONG, -2, Range(-2), False,
     "Age kept on local disk if older segments are in remote storage; -2: as retention.ms."),
    ("max.compaction.lag.ms", T.LONG, LONG_MAX, Range(1), True, "Longest time that a record stays uncompacted."),
    ("max.message.bytes", T.INT, 1048588, Range(0), True, "Largest record batch accepted, with its compression."),
    ("message.downconversion.enable", T.BOOLEAN, True, None, True,
     "Whether batches are converted for consumers that need an older format; if not, they get UNSUPPORTED_VERSION."),
    ("message.format.version", T.STRING, DEFAULT_FORMAT, METADATA_VERSION_RULE, True,
     "Deprecated: Kafka version whose message format is stored (0 before 0.10.0, 1 before 0.11.0, else 2); has an "
     "effect if inter.broker.protocol.version is below 3.0 and not older than this version."),
    ("message.timestamp.after.max.ms", T.LONG, LONG_MAX, Range(0), True,
     "How far a create time may lie ahead of the broker's clock."),
    ("message.timestamp.before.max.ms", T.LONG, LONG_MAX, Range(0), True,
     "How far a create time may lie behind the broker's clock."),
    ("message.timestamp.difference.max.ms", T.LONG, LONG_MAX, Range(0), True,
     "Deprecated: sets both limits on create times, unless the two newer settings are set."),
    ("message.timestamp.type", T.STRING, "CreateTime", TIMESTAMP_TYPES, True,
     "Whether records keep the producer's time or get the time of the append."),
    ("min.cleanable.dirty.ratio", T.DOUBLE, 0.5, Range(0, 1), True,
     "Share of a log that must be uncompacted before it is compacted."),
    ("min.compaction.lag.ms", T.LONG, 0, Range(0), True, "Shortest time that a record stays uncompacted."),
    ("min.insync.replicas", T.INT, 1, Range(1), True,
     "In-sync replicas that a produce with acks=all needs to be accepted."),
    ("preallocate", T.BOOLEAN, False, None, True,
     "Whether the file of a new segment is preallocated at its full size."),
    ("remote.log.copy.disable", T.BOOLEAN, False, None, False,
     "Whether segments are no longer copied to remote storage."),
    ("remote.log.delete.on.disable", T.BOOLEAN, False, None, False,
     "Whether remote data is deleted when remote storage is switched off."),
    ("remote.storage.enable", T.BOOLEAN, False, None, False, "Whether older segments are kept in remote storage."),
    ("retention.bytes", T.LONG, -1, None, True,
     "Size above which a partition's oldest segments are deleted; -1: no limit."),
    ("retention.ms", T.LONG, 7 * DAY_MS, Range(-1), True, "Age at which a segment is deleted; -1: no limit."),
    ("segment.bytes", T.INT, 1024**3, Range(14), True, "Size at which a log rolls to a new segment."),
    ("segment.index.bytes", T.INT, 10 * 1024**2, Range(4), True, "Largest size of a segment's offset index."),
    ("segment.jitter.ms", T.LONG, 0, Range(0), True,
     "Upper bound of a random time subtracted from segment.ms, so that partitions do not all roll at the same time."),
    ("segment.ms", T.LONG, 7 * DAY_MS, Range(1), True, "Age of a segment at which the log rolls."),
    ("unclean.leader.election.enable", T.BOOLEAN, False, None, True,
     "Whether a replica that is not in sync may become leader, which may lose records."),
)  # fmt: skip

TOPIC_KEYS: dict[str, ConfigKey] = key_table(
    ConfigKey(
        name,
        type,
        default,
        validator,
        "LOW" if name == "message.downconversion.enable" else "MEDIUM",
        doc,
        effect=effect,
    )
    for name, type, default, validator, effect, doc in _TOPIC_ROWS
)

# The broker settings for each topic setting, in order of precedence, each with its factor to milliseconds. A broker
# setting without a value is skipped.
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}

_REMOTE = ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable")

_DEFAULTS = {name: key.default for name, key in TOPIC_KEYS.items()}


class LogConfig:
    """The settings of one log, read-only, with one attribute per topic key (dots become underscores).

    cleanup_policy is a frozenset of "delete" and "compact". The deprecated message.timestamp.difference.max.ms is
    already included in the two message_timestamp limits. `overridden` contains the keys that the topic sets itself;
    `values` maps every key to its parsed value. `record_magic` is the message format of appends, 0 to 2;
    `protocol_version` is the broker's inter.broker.protocol.version in full ("2.8-IV1").
    """

    __slots__ = (
        *(name.replace(".", "_") for name in TOPIC_KEYS),
        "max_segment_ms",
        "overridden",
        "protocol_version",
        "record_magic",
        "values",
    )

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: list[str]
    index_interval_bytes: int
    leader_replication_throttled_replicas: list[str]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    overridden: frozenset[str]
    protocol_version: str
    record_magic: int
    values: Mapping[str, Any]

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        overridden: frozenset[str] = frozenset(),
        protocol_version: str = LATEST,
    ) -> None:
        """Build the settings from `values`, which maps topic keys to parsed values. A missing key gets Kafka's default.

        The values are not checked.
        """
        merged = {**_DEFAULTS, **values} if values else _DEFAULTS
        for name, value in merged.items():
            setattr(self, name.replace(".", "_"), value)
        self.cleanup_policy = frozenset(merged["cleanup.policy"])
        difference = self.message_timestamp_difference_max_ms
        if self.message_timestamp_before_max_ms == LONG_MAX:
            self.message_timestamp_before_max_ms = difference
        if self.message_timestamp_after_max_ms == LONG_MAX:
            self.message_timestamp_after_max_ms = difference
        # The age at which the active segment rolls; in a compacted log never above max.compaction.lag.ms.
        self.max_segment_ms = min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms
        self.overridden = overridden
        self.values = merged
        self.protocol_version = protocol_version
        self.record_magic = 2
        if format_can_be_chosen(protocol_version):
            self.record_magic = newest_format(self.message_format_version)

    @classmethod
    def from_overrides(cls, broker_defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
        """Return the broker's settings with a topic's stored overrides on top. Raise ConfigError for an invalid value.

        As in Kafka, unknown names are ignored, and rules between settings are not checked: `check_overrides` has
        checked both before the overrides were stored. A later change of the broker's defaults may violate such a rule
        for existing topics.
        """
        if not overrides:
            return broker_defaults
        parsed = {name: TOPIC_KEYS[name].parse(text) for name, text in overrides.items() if name in TOPIC_KEYS}
        for name in _REMOTE:
            if parsed.get(name):
                raise ConfigError(name, "true", "must be false: this broker has no remote storage")
        config = cls({**broker_defaults.values, **parsed}, frozenset(parsed), broker_defaults.protocol_version)
        if config.format_ignored() is not None:
            config.record_magic = broker_defaults.record_magic
        return config

    @classmethod
    def from_broker(cls, broker_values: Mapping[str, Any]) -> LogConfig:
        """Return the settings of a topic without overrides.

        `broker_values` maps names of broker settings to parsed values; a setting that is not configured is None or
        absent.
        """
        values: dict[str, Any] = {}
        for name, synonyms in TOPIC_SYNONYMS.items():
            for broker_name, factor in synonyms:
                value = broker_values.get(broker_name)
                if value is not None:
                    values[name] = value * factor if factor != 1 else value
                    break
        if values.get("retention.ms", 0) < 0:
            values["retention.ms"] = -1
        protocol_version = metadata_version(broker_values.get("inter.broker.protocol.version") or LATEST) or LATEST
        if "message.format.version" in values:
            # As in KafkaConfig.logMessageFormatVersion: the full name, or the default if the setting has no effect.
            chosen = metadata_version(values["message.format.version"])
            values["message.format.version"] = (
                chosen if chosen and format_can_be_chosen(protocol_version) else DEFAULT_FORMAT
            )
        return cls(values, protocol_version=protocol_version)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    def format_ignored(self) -> str | None:
        """Return a sentence that says why the topic's message.format.version is ignored.

        Return None if it has an effect, if the topic does not set it, or if ignoring it makes no difference.
        """
        if "message.format.version" not in self.overridden:
            return None
        chosen, protocol_version = self.message_format_version, self.protocol_version
        if format_can_be_chosen(protocol_version):
            if rank(chosen) <= rank(protocol_version):
                return None
            why = "is newer than"
        elif newest_format(chosen) == 2:
            return None  # also ignored, but format 2 is used anyway
        else:
            why = "cannot be chosen any more with"
        return f"message.format.version={chosen} is ignored: it {why} inter.broker.protocol.version={protocol_version}"

    @property
    def stores_zstd(self) -> bool:
        """Return True if zstd batches may be stored: every broker of the cluster has version 2.1 or later (KIP-110)."""
        return rank(self.protocol_version) >= rank("2.1-IV0")

    @property
    def compression_level(self) -> int | None:
        """Return the topic's compression level for the codec in compression_type, None if that codec has no level."""
        level: int | None = self.values.get(f"compression.{self.compression_type}.level")
        return level

    def random_segment_jitter(self) -> int:
        """Return the random number of milliseconds, below segment.jitter.ms, by which one segment is rolled earlier."""
        limit = min(self.segment_jitter_ms, self.segment_ms)
        if limit <= 0:
            return 0
        import random  # rarely needed: not imported at every start

        return random.randrange(limit)

    def __repr__(self) -> str:
        return "LogConfig(" + ", ".join(f"{name}={self.values[name]!r}" for name in sorted(self.overridden)) + ")"


def check_overrides(broker_defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic that is being created or altered with these overrides.

    Raise ConfigError for an unknown name, an invalid value, or settings that contradict each other.
    """
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError(name, overrides[name], "is not a topic setting")
    config = LogConfig.from_overrides(broker_defaults, overrides)
    check_topic_values(config.values)
    return config


def check_topic_values(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if a topic's min.compaction.lag.ms is above its max.compaction.lag.ms.

    `values` maps topic keys to parsed values and must contain both keys.
    """
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError("min.compaction.lag.ms", low, f"must be at most max.compaction.lag.ms, which is {high}")
