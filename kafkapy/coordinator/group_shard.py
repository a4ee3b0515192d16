"""The state of one partition of `__consumer_offsets`: its groups, and how far each has come.

Here is only who gets which record. Offset commits and the markers of transactions go to the offsets, group metadata to
the groups, and what a later version of Kafka wrote is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.coordinator_log import NO_SEQUENCE
from kafkapy.coordinator.group_counts import GroupCounts
from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.groups.rebalances import Rebalances, Settings
from kafkapy.coordinator.groups.records import group_of
from kafkapy.coordinator.offset_records import GroupKey, OffsetKey, decode_group, decode_key
from kafkapy.coordinator.offsets.store import OffsetStore
from kafkapy.coordinator.shard import Producer, Record

if TYPE_CHECKING:
    from kafkapy._ext.batch import BatchHeader
    from kafkapy.coordinator.shard import Shard
    from kafkapy.errors import KafkaError

log = logging.getLogger("kafkapy.coordinator.groups")

GROUP_METADATA = b"\0\2"  # the version that a key begins with; those below are offset commits


def base_sequence_of(records: Sequence[Record]) -> int:
    """0 for a batch of offset commits, as Kafka's storeOffsets writes it; it has no meaning."""
    key, value = records[0]
    return 0 if key[:2] < GROUP_METADATA and value is not None else NO_SEQUENCE


class GroupShard:
    """The machine of a shard. `groups` holds those with members or with offsets, or that are about to get some.

    `counts`: of all shards of the broker together.
    """

    shard: Shard[GroupShard]

    def __init__(self, settings: Callable[[], Settings], counts: GroupCounts | None = None) -> None:
        self.counts = counts or GroupCounts()
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.rebalances = Rebalances(self, settings)
        self._unknown: set[int] = set()  # versions of keys, told of

    def group(self, group_id: str, *, create: bool = False) -> Group | None:
        """The group; with `create` an empty one where there is none, which only keeps offsets."""
        group = self.groups.get(group_id)
        if group is None and create:
            group = self.groups[group_id] = Group(group_id, self.shard.clock)
        return group

    # --- records

    def replay_block(self, block: memoryview) -> int:
        """The loader's Replay: offsets go from the bytes into their table, the few other records come here."""
        return self.offsets.replay(block, self._load)

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        self.replay_block(batch[header.position : header.next_position])

    def _load(self, key: bytes, value: bytes | None) -> None:
        group_id = self._group_id(key)
        if group_id is None:
            return
        if value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group_of(group_id, decode_group(value), self.shard.clock)

    def _group_id(self, key: bytes) -> str | None:
        """Of a record of group metadata; None for any other."""
        found = decode_key(key)
        if isinstance(found, GroupKey):
            return found.group
        if not isinstance(found, OffsetKey) and found.version not in self._unknown:
            self._unknown.add(found.version)
            log.warning(
                "%s has records with keys of version %d, which a later version of Kafka writes: they are left alone",
                self.shard.name,
                found.version,
            )
        return None

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        self.offsets.apply(records, producer)
        for key, value in records:
            # What a record says of a group with members is what its step has made of it: only an end is news.
            if value is None and key[:2] >= GROUP_METADATA:
                group_id = self._group_id(key)
                if group_id is not None:
                    self.groups.pop(group_id, None)

    # --- life

    def loaded(self) -> None:
        self.offsets.loaded()
        for group_id in self.offsets.groups():
            self.group(group_id, create=True)
        self.rebalances.loaded()

    def unloaded(self, reason: KafkaError) -> None:
        self.rebalances.unloaded(reason)
