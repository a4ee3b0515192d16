"""Deletes committed offsets, for OffsetDelete and for expiry. An empty group that has no offsets left is deleted too.

Source: Kafka's GroupMetadataManager.cleanupGroupMetadata and GroupCoordinator.handleDeleteOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.deleting import end
from kafkapy.coordinator.groups.group import DEAD
from kafkapy.coordinator.offsets.store import TopicPartition
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine

Done = Callable[[KafkaError | None], object]


def check_deletion(machine: GroupMachine, group_id: str, partitions: Collection[TopicPartition]) -> list[int]:
    """Return an error code for each partition: GROUP_SUBSCRIBED_TO_TOPIC if a member of the group subscribes to the
    topic, whose offsets then cannot be deleted, otherwise NONE.

    Raises KafkaError GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if the group has members that are not consumers.
    """
    group = machine.groups.get(group_id)
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


def remove(
    machine: GroupMachine, group_id: str, partitions: Collection[TopicPartition], done: Done | None = None
) -> Effects:
    """Delete the group's committed offsets in these partitions, and the group itself if it has no members and no
    offsets left. Return the tombstones to append; `done` is called with None or the error of the append."""
    store = machine.offsets
    store.unstage(group_id, partitions)
    records = store.tombstones_of(group_id, dict.fromkeys(partitions))
    group = machine.groups.get(group_id)
    if group is not None and group.is_empty and store.count(group_id) == len(records):
        return end(machine, group, records, done)
    return Effects(records, done)
