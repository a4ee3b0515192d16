"""An offset manager over one shard whose log is a list, and a clock that moves by hand."""

from __future__ import annotations

from typing import Any

from kafkapy.coordinator.group_shard import GroupShard
from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.offset_records import CommittedOffset
from kafkapy.coordinator.offsets.commits import Commit
from kafkapy.coordinator.offsets.manager import OffsetManager
from kafkapy.coordinator.offsets.store import GroupOffset
from kafkapy.coordinator.shard import Producer, Shard
from kafkapy.errors import KafkaError
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.memory_shard import MemoryLog, memory_shard

MINUTE = 60


class OneShard:
    """What OffsetManager needs of Shards."""

    def __init__(self, shard: Shard[GroupShard]) -> None:
        self.shard = shard
        self.refusal: KafkaError | None = None

    def of(self, key: str) -> Shard[GroupShard]:
        if self.refusal is not None:
            raise self.refusal
        return self.shard

    def at(self, index: int) -> Shard[GroupShard] | None:
        return self.shard if index == self.shard.index else None

    def active(self) -> list[Shard[GroupShard]]:
        return [self.shard]


class World:
    """`settings` may be changed at any time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = HandTimer(self.clock)
        self.settings: dict[str, Any] = {
            "offset.metadata.max.bytes": 4096,
            "message.max.bytes": 1_048_588,
            "offsets.commit.timeout.ms": 5000,
            "offsets.retention.minutes": 10,
            "group.max.size": 1000,
        }
        self.home = GroupShard(lambda: self.settings)
        self.shard: Shard[GroupShard]
        self.log: MemoryLog
        timer: Any = self.timer
        self.shard, self.log = memory_shard(self.home, self.clock, timer, topic="__consumer_offsets", index=7)
        self.home.shard = self.shard
        self.shards = OneShard(self.shard)
        self.offsets = OffsetManager(self.shards, lambda: self.settings, self.clock)  # type: ignore[arg-type]

    def offset(self, topic: str, partition: int, offset: int, metadata: str = "", expires: int = -1) -> GroupOffset:
        return GroupOffset(topic, partition, CommittedOffset(offset, -1, metadata, self.clock.time_ms(), expires))

    def begin_commit(
        self,
        *offsets: GroupOffset,
        group: str = "g",
        producer: Producer | None = None,
        member: str = "",
        generation: int = -1,
    ) -> list[list[int]]:
        """The codes are in the list when they are known."""
        told: list[list[int]] = []
        self.offsets.commit(Commit(group, member, None, generation, list(offsets), producer), told.append)
        return told

    def commit(self, *offsets: GroupOffset, **who: Any) -> list[int]:
        (codes,) = self.begin_commit(*offsets, **who)
        return codes

    def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        return {
            (topic, partition): found.offset
            for topic, partition, (_, found) in self.offsets.fetch_all(group, require_stable=False)
        }

    def codes(self, group: str, *partitions: tuple[str, int]) -> list[int]:
        """Of a fetch that wants what is stable."""
        return [code for code, _ in self.offsets.fetch(group, partitions, require_stable=True)]

    def group(self, group_id: str = "g") -> Group:
        return self.home.groups[group_id]
