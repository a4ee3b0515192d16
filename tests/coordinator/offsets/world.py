"""An offset manager over one shard whose log is a list, with a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkapy.coordinator.group_machine import GroupMachine
from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.offsets.commits import Commit
from kafkapy.coordinator.offsets.manager import OffsetManager
from kafkapy.coordinator.shard import Producer, Shard
from kafkapy.errors import KafkaError
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.memory_shard import MemoryLog, memory_shard

MINUTE = 60
NewOffset = tuple[str, list[tuple[int, int, int, str, int]]]  # an element of NewOffsets


class OneShard:
    """A stand-in for `Shards` with one shard, and with the methods that OffsetManager calls."""

    def __init__(self, shard: Shard[GroupMachine]) -> None:
        self.shard = shard
        self.refusal: KafkaError | None = None

    def of(self, key: str) -> Shard[GroupMachine]:
        if self.refusal is not None:
            raise self.refusal
        return self.shard

    def at(self, index: int) -> Shard[GroupMachine] | None:
        return self.shard if index == self.shard.index else None

    def active(self) -> list[Shard[GroupMachine]]:
        return [self.shard]

    def each(self, act: Callable[[Shard[GroupMachine]], object]) -> None:
        act(self.shard)


class World:
    """An offset manager with a manual clock. Tests may change `settings` at any time."""

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
        self.machine = GroupMachine(lambda: self.settings)
        self.shard: Shard[GroupMachine]
        self.log: MemoryLog
        timer: Any = self.timer
        self.shard, self.log = memory_shard(self.machine, self.clock, timer, topic="__consumer_offsets", index=7)
        self.machine.shard = self.shard
        self.shards = OneShard(self.shard)
        self.offsets = OffsetManager(self.shards, lambda: self.settings, self.clock)  # type: ignore[arg-type]

    def offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> NewOffset:
        return topic, [(partition, offset, -1, metadata, -1)]

    def begin_commit(
        self,
        *offsets: NewOffset,
        group: str = "g",
        producer: Producer | None = None,
        member: str = "",
        generation: int = -1,
        expires: int = -1,
    ) -> list[list[int]]:
        """Start a commit. Return a list that gets the error codes when the commit is answered."""
        codes: list[list[int]] = []
        now_ms = self.clock.time_ms()
        commit = Commit(group, member, None, generation, list(offsets), producer, now_ms, expires)
        self.offsets.commit(commit, codes.append)
        return codes

    def commit(self, *offsets: NewOffset, **who: Any) -> list[int]:
        (codes,) = self.begin_commit(*offsets, **who)
        return codes

    def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        return {
            (topic, partition): found.offset
            for topic, partition, (_, found) in self.offsets.fetch_all(group, require_stable=False)
        }

    def codes(self, group: str, *partitions: tuple[str, int]) -> list[int]:
        """Return the error codes of an offset fetch with require_stable."""
        return [code for code, _ in self.offsets.fetch(group, partitions, require_stable=True)]

    def group(self, group_id: str = "g") -> Group:
        return self.machine.groups[group_id]
