"""Deleting offsets, by hand or because they are too old. What goes last takes an empty group along.

Source: Kafka's GroupMetadataManager.cleanupGroupMetadata and GroupCoordinator.handleDeleteOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafkapy.coordinator.groups.deleting import end
from kafkapy.coordinator.groups.group import DEAD
from kafkapy.coordinator.offsets.commits import Home
from kafkapy.coordinator.offsets.store import TopicPartition
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE

Done = Callable[[KafkaError | None], object]


def check_deletion(home: Home, group_id: str, partitions: Collection[TopicPartition]) -> list[int]:
    """A code for each: a group keeps the offsets of topics that its members read.

    Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (its members are no consumers).
    """
    group = home.groups.get(group_id)
    if group is None or group.state == DEAD:
        raise KafkaError(Errors.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group.is_empty:
        return [Errors.NONE] * len(partitions)
    if group.protocol_type != PROTOCOL_TYPE:
        raise KafkaError(Errors.NON_EMPTY_GROUP, f"group {group_id!r} has members")
    topics = group.subscribed_topics()
    return [
        Errors.GROUP_SUBSCRIBED_TO_TOPIC if topics is None or topic in topics else Errors.NONE
        for topic, _ in partitions
    ]


def remove(home: Home, group_id: str, partitions: Collection[TopicPartition], done: Done | None = None) -> Effects:
    """Deletes offsets where there are any; with the last one the group, if it is empty."""
    store = home.offsets
    store.forget_staged(group_id, partitions)
    records = store.tombstones_of(group_id, dict.fromkeys(partitions))
    group = home.groups.get(group_id)
    if group is not None and group.is_empty and store.count(group_id) == len(records):
        return end(home, group, records, done)
    return Effects(records, done)
