"""Deletes committed offsets that are older than offsets.retention.minutes, and groups that have no offsets left.

The retention time of a group's offsets begins when the group becomes empty. It begins with the commit for offsets of
consumers without a group, and for topics that the group no longer subscribes to. An offset with an expire timestamp
(from clients before Kafka 2.1) expires at that time. Source: Kafka's GroupMetadata.removeExpiredOffsets,
GroupMetadataManager.cleanupGroupMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.group import DEAD, STABLE, Group
from kafkapy.coordinator.offsets.removals import remove
from kafkapy.coordinator.offsets.store import TopicPartition
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.shard import Effects

# Limits of a step, which runs under the shard's lock while requests wait: 100 to 200 microseconds of work.
LOOKED_AT_A_STEP = 2000
REMOVED_A_STEP = 30


class GroupExpiry:
    """Deletes the expired offsets of one group in small steps. Run `step` on the shard that stores the group (a
    partition of `__consumer_offsets`) until `is_done`. `removed` is the number of offsets deleted so far."""

    def __init__(self, group_id: str, now_ms: int, retention_ms: int) -> None:
        self._group_id = group_id
        self._now_ms = now_ms
        self._retention_ms = retention_ms
        self._after = -1
        self.is_done = False
        self.removed = 0

    def step(self, machine: GroupMachine) -> Effects | None:
        """Check a limited number of the group's offsets for expiry, beginning where the previous step ended. Return the
        tombstones of the expired offsets, which the shard appends, or None if this step deletes nothing.

        If the group has no members and no offsets left, it is deleted too. Sets `is_done` if nothing is left to check.
        """
        group = machine.groups.get(self._group_id)
        if group is None or group.state == DEAD:
            self.is_done = True
            return None
        expired = self._expired(machine, group)
        self.removed += len(expired)
        machine.counts.expired += len(expired)
        if not expired and not (group.is_empty and machine.offsets.count(group.id) == 0):
            return None
        return remove(machine, group.id, expired)

    def _expired(self, machine: GroupMachine, group: Group) -> list[TopicPartition]:
        subscribed: set[str] = set()
        since = None
        if group.protocol_type is not None and group.is_empty:
            since = group.current_state_timestamp_ms
        elif group.protocol_type is not None:
            topics = group.subscribed_topics()
            if group.state != STABLE or group.protocol_type != PROTOCOL_TYPE or topics is None:
                self.is_done = True
                return []
            subscribed = topics
        found, self._after = machine.offsets.table.expired(
            group.id, self._now_ms, self._retention_ms, since, self._after, LOOKED_AT_A_STEP, REMOVED_A_STEP
        )
        self.is_done = self._after < 0
        unstable = machine.offsets.unstable(group.id)
        return [partition for partition in found if partition[0] not in subscribed and partition not in unstable]
