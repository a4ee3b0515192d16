"""The rules for creating topics and partitions: topic names, numbers of partitions and replicas, and replica
assignments.

Rules and error codes are those of Kafka (Topic, AdminZkClient, AdminUtils). As in KRaft, the brokers of a manual
assignment must exist. The functions raise KafkaError if a rule is violated.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from kafkapy.errors import Errors, KafkaError

MAX_NAME_LENGTH = 249
# KRaft's limit for one request.
MAX_NEW_PARTITIONS = 10_000
NOT_GIVEN = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

Assignment = Mapping[int, Sequence[int]]


def is_internal(name: str) -> bool:
    """Return True if this is the name of an internal topic, in which brokers keep their own state."""
    return name in INTERNAL_TOPICS


def validate_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION if the topic name is invalid."""
    if not name:
        problem = "is empty"
    elif name in (".", ".."):
        problem = "is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"has {len(name)} characters, more than {MAX_NAME_LENGTH}"
    elif not _LEGAL.issuperset(name):
        problem = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"the topic name {name[:300]!r} {problem}")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION if an existing topic's name differs from `name` only in '.' and '_'.
    Such names look the same in the names of metrics."""
    if "." not in name and "_" not in name:
        return
    flat = name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == flat and other != name:
            raise KafkaError(
                Errors.INVALID_TOPIC_EXCEPTION,
                f"the topic name {name} differs from the existing topic {other} only in '.' and '_'",
            )


def plan_topic(
    brokers: Collection[int] | Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    manual: Assignment | None,
    *,
    default_partitions: int,
    default_replication: int,
) -> dict[int, list[int]]:
    """Return the broker ids of the replicas of each partition of a new topic, the preferred leader first.

    A partition count or replication factor of -1 means the default. `manual` is an assignment chosen by the client,
    which excludes both numbers. `brokers` are the ids of the brokers that can get replicas, or a mapping from each id
    to its rack. Raises KafkaError for an invalid number or assignment.
    """
    if manual:
        if partition_count != NOT_GIVEN or replication_factor != NOT_GIVEN:
            raise KafkaError(
                Errors.INVALID_REQUEST,
                "a manual assignment excludes a number of partitions and a replication factor",
            )
        return _checked(manual, brokers)
    partition_count = default_partitions if partition_count == NOT_GIVEN else partition_count
    replication_factor = default_replication if replication_factor == NOT_GIVEN else replication_factor
    _check_counts(partition_count, replication_factor, len(brokers))
    _check_number(partition_count)
    return spread_over_racks(_with_racks(brokers), partition_count, replication_factor)


def plan_more_partitions(
    name: str,
    current: Assignment,
    brokers: Collection[int] | Mapping[int, str | None],
    new_count: int,
    manual: Sequence[Sequence[int]] | None,
) -> dict[int, list[int]]:
    """Return the broker ids of the replicas of each partition to add, so that topic `name` has `new_count` partitions.

    `current` is the topic's present assignment. `manual` has the replicas of each new partition if the client has
    chosen them. `brokers` are the ids of the brokers that can get replicas, or a mapping from each id to its rack.
    Raises KafkaError for an invalid number or assignment.
    """
    count = len(current)
    if new_count < count:
        raise KafkaError(
            Errors.INVALID_PARTITIONS, f"topic {name} has {count} partitions; their number cannot shrink to {new_count}"
        )
    if new_count == count:
        raise KafkaError(Errors.INVALID_PARTITIONS, f"topic {name} already has {count} partitions")
    _check_number(new_count - count)
    replication_factor = len(current[0])
    if manual is None:
        racks = _with_racks(brokers)
        if replication_factor > len(racks):
            raise KafkaError(
                Errors.INVALID_REPLICATION_FACTOR,
                f"topic {name} has {replication_factor} replicas, more than the {len(racks)} brokers there are",
            )
        # As in Kafka, the new partitions begin with the broker that leads the first partition.
        start = next((at for at, broker in enumerate(sorted(racks)) if broker >= current[0][0]), 0)
        return spread_over_racks(racks, new_count - count, replication_factor, start=start, first_partition=count)
    if len(manual) != new_count - count:
        raise KafkaError(
            Errors.INVALID_REPLICA_ASSIGNMENT,
            f"{new_count - count} partitions are to be added, but {len(manual)} assignments are given",
        )
    planned = {count + index: list(replicas) for index, replicas in enumerate(manual)}
    for partition, replicas in planned.items():
        _check_replicas(partition, replicas, brokers)
        if len(replicas) != replication_factor:
            raise KafkaError(
                Errors.INVALID_REPLICA_ASSIGNMENT,
                f"partition {partition} is given {len(replicas)} replicas, but partition 0 has {replication_factor}",
            )
    return planned


def _with_racks(brokers: Collection[int] | Mapping[int, str | None]) -> Mapping[int, str | None]:
    return brokers if isinstance(brokers, Mapping) else dict.fromkeys(brokers)


def _checked(manual: Assignment, brokers: Collection[int]) -> dict[int, list[int]]:
    planned = {partition: list(replicas) for partition, replicas in sorted(manual.items())}
    _check_number(len(planned))
    for partition, replicas in planned.items():
        _check_replicas(partition, replicas, brokers)
    if len({len(replicas) for replicas in planned.values()}) != 1:
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, "all partitions must have the same number of replicas")
    if list(planned) != list(range(len(planned))):
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without a gap")
    return planned


def _check_replicas(partition: int, replicas: Sequence[int], brokers: Collection[int]) -> None:
    if not replicas:
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} has no replicas")
    if len(set(replicas)) != len(replicas):
        raise KafkaError(
            Errors.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} has a broker twice: {list(replicas)}"
        )
    unknown = sorted(set(replicas) - set(brokers))
    if unknown:
        raise KafkaError(
            Errors.INVALID_REPLICA_ASSIGNMENT,
            f"partition {partition} has unknown brokers {unknown}; the brokers are {sorted(brokers)}",
        )


def _check_counts(partition_count: int, replication_factor: int, broker_count: int) -> None:
    if partition_count <= 0:
        raise KafkaError(Errors.INVALID_PARTITIONS, f"a topic cannot have {partition_count} partitions")
    if replication_factor <= 0:
        raise KafkaError(Errors.INVALID_REPLICATION_FACTOR, f"a topic cannot have {replication_factor} replicas")
    if replication_factor > broker_count:
        raise KafkaError(
            Errors.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is more than the {broker_count} brokers there are",
        )


def _check_number(new_partitions: int) -> None:
    if new_partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(
            Errors.POLICY_VIOLATION,
            f"{new_partitions} new partitions at once are too many; the limit is {MAX_NEW_PARTITIONS}",
        )


def spread_over_racks(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int | None = None,
    first_partition: int = 0,
) -> dict[int, list[int]]:
    """Return the broker ids of the replicas of each partition of a new topic, the preferred leader first, as Kafka
    chooses them (AdminUtils.assignReplicasToBrokers). `first_partition` is the index of the first new partition.

    `racks` has the rack of each broker that can get replicas. If brokers have racks, the replicas of a partition are on
    as many racks as possible. `start` is the index of the broker with which to begin, and the shift of the second
    replicas; by default both are random. Raises KafkaError if the numbers are invalid or only some brokers have racks.
    """
    _check_counts(partition_count, replication_factor, len(racks))
    known = [rack is not None for rack in racks.values()]
    has_racks = any(known)
    if has_racks and not all(known):
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, "some brokers have a rack and others have none")
    brokers = _alternated(racks)
    count = len(brokers)
    # Without racks each broker counts as a rack of its own, so that no broker is skipped.
    rack_of = dict(racks) if has_racks else {broker: str(broker) for broker in brokers}
    all_racks = len(set(rack_of.values()))
    stride = all_racks if has_racks else 1
    first_index = random.randrange(count) if start is None else start
    shift = random.randrange(count) if start is None else start
    assignment = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition and partition % count == 0:
            shift += 1
        first = (partition + first_index) % count
        replicas = [brokers[first]]
        used = {rack_of[brokers[first]]}
        step = 0
        while len(replicas) < replication_factor:
            broker = brokers[(first + 1 + (shift * stride + step) % (count - 1)) % count]
            step += 1
            if broker not in replicas and (rack_of[broker] not in used or len(used) == all_racks):
                replicas.append(broker)
                used.add(rack_of[broker])
        assignment[partition] = replicas
    return assignment


def _alternated(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers in an order in which neighbours are on different racks: the first brokers of all racks, then
    the second ones."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    return [broker for row in zip_longest(*columns) for broker in row if broker is not None]
