"""The state machine of one partition of `__consumer_offsets`: its consumer groups and their committed offsets.

This module only routes records. Offset commits and transaction markers go to the offset store, group metadata records
to the groups. Record types of later Kafka versions are ignored.
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
    from kafkapy.coordinator.room import Room
    from kafkapy.coordinator.shard import Shard
    from kafkapy.errors import KafkaError

log = logging.getLogger("kafkapy.coordinator.groups")

GROUP_METADATA = b"\0\2"  # the version at the start of the key of a group's record; lower versions are offset commits


def base_sequence_of(records: Sequence[Record]) -> int:
    """Return the base sequence to write into a batch with these records: 0 for offset commits, as in Kafka's
    storeOffsets, and -1 for other records. No broker reads the number."""
    key, value = records[0]
    return 0 if key[:2] < GROUP_METADATA and value is not None else NO_SEQUENCE


class GroupMachine:
    """The state machine of one partition of `__consumer_offsets`.

    `groups` has the groups that have members, committed offsets or a commit in progress, by group id. `counts` has the
    coordinator's counters, which are shared by all partitions.
    """

    shard: Shard[GroupMachine]

    def __init__(
        self, settings: Callable[[], Settings], counts: GroupCounts | None = None, room: Room | None = None
    ) -> None:
        self.counts = counts or GroupCounts()
        self._room = room
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.rebalances = Rebalances(self, settings)
        self._unknown: set[int] = set()  # unknown key versions that were already logged

    def group(self, group_id: str, *, create: bool = False) -> Group | None:
        """Return the group with this id, or None if there is none. With `create`, a missing group is created without
        members, to hold only committed offsets."""
        group = self.groups.get(group_id)
        if group is None and create:
            group = self.groups[group_id] = Group(group_id, self.shard.clock)
        return group

    def check_room(self, group_id: str) -> None:
        """Raise KafkaError POLICY_VIOLATION if the group does not exist, and the broker may not have more groups."""
        if self._room is not None and group_id not in self.groups:
            self._room.check(group_id)

    # --- records

    def replay_block(self, block: memoryview) -> int:
        """Load the complete batches at the start of a block of the log, and return the offset after the last of them
        (implements `shard_loader.Replay`).

        The C extension reads offset commits from the block directly into the offset table. All other records go to
        `_load`.
        """
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
        """Return the group id in the key of a group metadata record, or None for any other key. Log a key version of a
        later Kafka the first time that it occurs."""
        found = decode_key(key)
        if isinstance(found, GroupKey):
            return found.group
        if not isinstance(found, OffsetKey) and found.version not in self._unknown:
            self._unknown.add(found.version)
            log.warning(
                "%s has records with keys of version %d, written by a later version of Kafka: they are ignored",
                self.shard.name,
                found.version,
            )
        return None

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        self.offsets.apply(records, producer)
        for key, value in records:
            # The step that wrote a group's record has already changed the group in memory; only tombstones change it
            # here.
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
