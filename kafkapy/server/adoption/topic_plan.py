"""Plans the metadata of one adopted topic: its id, its partitions with their leader epochs, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkapy.errors import KafkaError
from kafkapy.log.config import TOPIC_KEYS, LogConfig
from kafkapy.metadata.ids import encode_id, new_id
from kafkapy.metadata.topic_rules import MAX_NEW_PARTITIONS, validate_name
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.knowledge import Knowledge, KnownTopic
from kafkapy.server.adoption.partition_dir import FoundPartition

# If a topic's settings are unknown, no record may be deleted: with the defaults, a compacted topic would lose all
# records older than a week.
KEEP_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
# The settings that Kafka's coordinators give to their internal topics.
INTERNAL = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}
NOT_KNOWN = "not known"
ALWAYS_SO = "as always in Kafka"


class PlannedTopic(NamedTuple):
    """The metadata that an adoption writes for one topic. `epochs` has the leader epoch of each partition from 0 on;
    `missing` has the partitions without a directory; `source` is the origin of the settings, for messages."""

    name: str
    id: bytes
    has_new_id: bool
    epochs: dict[int, int]
    missing: list[int]
    settings: dict[str, str]
    source: str
    segments: int
    size: int


def plan_topic(
    name: str, partitions: Mapping[int, FoundPartition], known: Knowledge, broker_id: int, warnings: list[str]
) -> PlannedTopic:
    """Return the metadata to write for one topic, and append messages for the operator to `warnings`. Raise
    AdoptionError if the topic's directories contradict the metadata from other sources."""
    try:
        validate_name(name)
    except KafkaError as error:
        raise AdoptionError(f"{next(iter(partitions.values())).directory}: {error.message}") from error
    in_zookeeper = (known.topics or {}).get(name)
    epochs, missing = _epochs(name, partitions, in_zookeeper)
    if missing:
        warnings.append(
            f"{name} has no directory here for {_listed(missing)}, which will be empty: does another broker, or "
            "another log directory, hold records of it?"
        )
    if in_zookeeper is not None:
        _warn_of_replicas(name, in_zookeeper, broker_id, warnings)
    settings, source = _settings(name, known, warnings)
    topic_id = _topic_id(name, partitions, in_zookeeper)
    return PlannedTopic(
        name,
        topic_id or new_id(),
        topic_id is None,
        epochs,
        missing,
        settings,
        source,
        sum(one.segments for one in partitions.values()),
        sum(one.size for one in partitions.values()),
    )


def _epochs(
    name: str, partitions: Mapping[int, FoundPartition], known: KnownTopic | None
) -> tuple[dict[int, int], list[int]]:
    """Return the leader epoch of each partition, which is never below the highest one in the partition's log, and the
    list of the partitions without a directory. Raise AdoptionError if more than MAX_NEW_PARTITIONS partitions have no
    directory."""
    count = max([*partitions, *(known.assignment if known is not None else ())]) + 1
    if count - len(partitions) > MAX_NEW_PARTITIONS:
        raise AdoptionError(
            f"{partitions[max(partitions)].directory} would be partition {max(partitions)} of a topic {name}, of which "
            f"only {len(partitions)} partitions are there: if it is none of Kafka's, move it away"
        )
    epochs = {}
    for partition in range(count):
        stored = partitions[partition].highest.leader_epoch if partition in partitions else 0
        epochs[partition] = max(0, stored, known.leader_epochs.get(partition, 0) if known is not None else 0)
    return epochs, [partition for partition in epochs if partition not in partitions]


def _topic_id(name: str, partitions: Mapping[int, FoundPartition], known: KnownTopic | None) -> bytes | None:
    ids = {one.topic_id: one.directory for one in partitions.values() if one.topic_id is not None}
    if len(ids) > 1:
        some = " and ".join(f"{encode_id(topic_id)} in {directory}" for topic_id, directory in list(ids.items())[:2])
        raise AdoptionError(
            f"the partitions of {name} are of different topics of that name ({some}): move those of the one that was "
            "deleted away"
        )
    stored = next(iter(ids), None)
    in_zookeeper = known.topic_id if known is not None else None
    if stored is not None and in_zookeeper is not None and stored != in_zookeeper:
        raise AdoptionError(
            f"{ids[stored]} is of a topic {name} with the id {encode_id(stored)}, but in ZooKeeper {name} has the id "
            f"{encode_id(in_zookeeper)}: is it another cluster, or was the topic deleted and created again?"
        )
    return stored or in_zookeeper


def _settings(name: str, known: Knowledge, warnings: list[str]) -> tuple[dict[str, str], str]:
    given = known.settings.get(name)
    if given is None:
        return (dict(INTERNAL[name]), ALWAYS_SO) if name in INTERNAL else (dict(KEEP_ALL), NOT_KNOWN)
    usable = {key: value for key, value in given.items() if key in TOPIC_KEYS}
    if left_out := sorted(given.keys() - usable.keys()):
        warnings.append(f"{name}: left out, because Apache Kafka 3.9 has no such settings: {', '.join(left_out)}")
    try:
        LogConfig.from_overrides(LogConfig(), usable)
    except ConfigError as error:
        raise AdoptionError(f"the settings of {name} (from {known.sources[name]}): {error}") from error
    return usable, known.sources[name]


def _warn_of_replicas(name: str, known: KnownTopic, broker_id: int, warnings: list[str]) -> None:
    if known.deleting:
        warnings.append(f"{name} was to be deleted, which Kafka had not done yet: it is adopted, delete it again")
    others = sorted({broker for replicas in known.assignment.values() for broker in replicas} - {broker_id})
    if others:
        warnings.append(
            f"{name} has replicas on other brokers ({', '.join(map(str, others))}), which may hold newer records"
        )


def _listed(partitions: list[int]) -> str:
    shown = ", ".join(map(str, partitions[:10]))
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return f"partition{'' if len(partitions) == 1 else 's'} {shown}{more}"
