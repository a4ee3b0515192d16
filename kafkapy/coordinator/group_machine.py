"""The state machine of one partition of `__consumer_offsets`: its groups and their committed offsets.

This module only routes records: offset commits and transaction markers go to the offset store, group metadata to the
groups. Record types of later Kafka versions are ignored.
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

GROUP_METADATA = b"\0\2"  # the version at the start of the key of a group's record; lower versions are offset commits


def base_sequence_of(records: Sequence[Record]) -> int:
    """Return a batch's base sequence: 0 for offset commits, as in Kafka's storeOffsets, else -1. Nothing reads it."""
    key, value = records[0]
    return 0 if key[:2] < GROUP_METADATA and value is not None else NO_SEQUENCE


class GroupMachine:
    """The state machine of a group shard.

    `groups` has the groups with members or offsets, or with a commit in progress. `counts` is shared by all shards.
    """

    shard: Shard[GroupMachine]

    def __init__(self, settings: Callable[[], Settings], counts: GroupCounts | None = None) -> None:
        self.counts = counts or GroupCounts()
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.rebalances = Rebalances(self, settings)
        self._unknown: set[int] = set()  # key versions that were logged

    def group(self, group_id: str, *, create: bool = False) -> Group | None:
        """Return the group, or None. With `create`, a missing group is added without members, to keep offsets only."""
        group = self.groups.get(group_id)
        if group is None and create:
            group = self.groups[group_id] = Group(group_id, self.shard.clock)
        return group

    # --- records

    def replay_block(self, block: memoryview) -> int:
        """Load the batches of a block of the log and return the offset after them (a Replay of shard_loader).

        The extension reads offset commits from the bytes into the offset table; other records go to `_load`.
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
        """Return the group id of a group metadata record's key, None for any other key. Log an unknown key version
        once."""
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
