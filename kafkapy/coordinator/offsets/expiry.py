"""Offsets that nobody has committed for offsets.retention.minutes, and groups that have none left: they go.

What counts is when the group became empty. Offsets that a consumer without a group keeps, and those of topics that a
group's members no longer read, count from their own commit. One that names its end (of a client before Kafka 2.1) ends
then, whoever reads it. Source: Kafka's GroupMetadata.removeExpiredOffsets, GroupMetadataManager.cleanupGroupMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.coordinator.groups.group import DEAD, STABLE, Group
from kafkapy.coordinator.offsets.commits import Home
from kafkapy.coordinator.offsets.removals import remove
from kafkapy.coordinator.offsets.store import TopicPartition
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kafkapy.coordinator.shard import Effects

# A step runs under the shard's lock, beside requests: 100 to 200 microseconds of work.
LOOKED_AT_A_STEP = 2000
REMOVED_A_STEP = 30


class Look:
    """At one group: `step` until `is_done`; `removed` counts the offsets."""

    def __init__(self, group_id: str, now_ms: int, retention_ms: int) -> None:
        self._group_id = group_id
        self._now_ms = now_ms
        self._retention_ms = retention_ms
        self._after = -1
        self.is_done = False
        self.removed = 0

    def step(self, home: Home) -> Effects | None:
        group = home.groups.get(self._group_id)
        if group is None or group.state == DEAD:
            self.is_done = True
            return None
        expired = self._expired(home, group)
        self.removed += len(expired)
        home.counts.expired += len(expired)
        if not expired and not (group.is_empty and home.offsets.count(group.id) == 0):
            return None
        return remove(home, group.id, expired)

    def _expired(self, home: Home, group: Group) -> list[TopicPartition]:
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
        found, self._after = home.offsets.table.expired(
            group.id, self._now_ms, self._retention_ms, since, self._after, LOOKED_AT_A_STEP, REMOVED_A_STEP
        )
        self.is_done = self._after < 0
        unstable = home.offsets.unstable(group.id)
        return [one for one in found if one[0] not in subscribed and one not in unstable]
