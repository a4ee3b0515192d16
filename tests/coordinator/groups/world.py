"""A group coordinator with one shard, and its clients. Tests control its log, clock and timer."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from kafkapy.coordinator.group_machine import GroupMachine
from kafkapy.coordinator.groups.coordinator import GroupCoordinator
from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.groups.joining import Join
from kafkapy.coordinator.groups.syncing import Sync
from kafkapy.coordinator.offset_records import GroupKey, decode_group, decode_key
from kafkapy.coordinator.shard import Shard
from kafkapy.errors import Errors
from kafkapy.protocol.apis import LEAVE_GROUP
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.blocks import blocks
from tests.coordinator.memory_shard import MemoryLog

TOPIC = "__consumer_offsets"
GROUP = "readers"
RANGE = (("range", b"r"),)
Protocols = Sequence[tuple[str, bytes]]


class HandEntry:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HandTimer:
    """A timer whose `advance` calls the due callbacks on the caller's thread, in order of time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._entries: list[tuple[float, int, HandEntry]] = []
        self._order = count()
        self.rung = 0

    def schedule(self, delay_s: float, callback: Callable[[], object]) -> HandEntry:
        entry = HandEntry(callback)
        heapq.heappush(self._entries, (self._clock.monotonic() + delay_s, next(self._order), entry))
        return entry

    def __len__(self) -> int:
        return sum(entry.callback is not None for _, _, entry in self._entries)

    def advance(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while self._entries and self._entries[0][0] <= until:
            due, _, entry = heapq.heappop(self._entries)
            self._clock.advance(max(0.0, due - self._clock.monotonic()))
            if entry.callback is not None:
                self.rung += 1
                entry.callback()
        self._clock.advance(max(0.0, until - self._clock.monotonic()))


class OneShard:
    """A stand-in for `Shards`, with a single shard that has every group."""

    is_loading = False

    def __init__(self, shard: Shard[GroupMachine]) -> None:
        self.shard = shard

    def of(self, key: str) -> Shard[GroupMachine]:
        self.shard.check()
        return self.shard

    def active(self) -> list[Shard[GroupMachine]]:
        return [self.shard]


class Asked:
    """A request in progress. `answer` is its response, None until there is one."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, answer: Any) -> None:
        self.answers.append(answer)
        assert len(self.answers) == 1, "answered twice"

    @property
    def answer(self) -> Any:
        return self.answers[0] if self.answers else None

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def code(self) -> int | None:
        return self.answers[0].error_code if self.answers else None


class World:
    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.timer = HandTimer(self.clock)
        self.settings = {
            "group.initial.rebalance.delay.ms": 0,
            "group.max.size": 2**31 - 1,
            "message.max.bytes": 1_048_588,
            "group.min.session.timeout.ms": 6000,
            "group.max.session.timeout.ms": 1800000,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.log = MemoryLog()
        self._start(lambda machine: None)

    def _start(self, load: Callable[[GroupMachine], None]) -> None:
        machine = GroupMachine(lambda: self.settings)
        self.shard: Shard[GroupMachine] = Shard(TOPIC, 0, machine, self.log, clock=self.clock, timer=self.timer)  # type: ignore[arg-type]
        machine.shard = self.shard
        load(machine)
        self.shard.begin()
        self.coordinator = GroupCoordinator(OneShard(self.shard))  # type: ignore[arg-type]

    def restart(self) -> None:
        """End the shard and load a new one from the log, as a new leader would."""
        self.shard.end()

        def load(machine: GroupMachine) -> None:
            for block in blocks(self.log.batches):
                machine.replay_block(memoryview(block))

        self._start(load)

    # --- reading

    @property
    def group(self) -> Group:
        return self.shard.machine.groups[GROUP]

    def group_records(self) -> list[Any]:
        """Return the group's records, decoded, with None for a tombstone."""
        return [
            None if value is None else decode_group(value)
            for key, value in self.log.records
            if decode_key(key) == GroupKey(GROUP)
        ]

    # --- requests of clients

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        needs_id: bool = False,
        may_skip: bool = True,
        client: str = "c",
        group: str = GROUP,
    ) -> Asked:
        asked = Asked()
        self.coordinator.join(
            group,
            Join(
                member_id=member_id,
                instance_id=instance,
                client_id=client,
                client_host="/127.0.0.1",
                session_ms=session_ms,
                rebalance_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=tuple(protocols),
                needs_id=needs_id and instance is None,
                may_skip=may_skip,
                reason=None,
                reply=asked,
            ),
        )
        return asked

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
        group: str = GROUP,
    ) -> Asked:
        asked = Asked()
        self.coordinator.sync(
            group, Sync(member_id, instance, generation, protocol_type, protocol, dict(assignments or {}), asked)
        )
        return asked

    def heartbeat(
        self, member_id: str, generation: int, *, instance: str | None = None, group: str = GROUP
    ) -> int | None:
        asked = Asked()
        self.coordinator.heartbeat(group, member_id, instance, generation, asked)
        return asked.code

    def leave(self, *members: str, instances: Sequence[str] = (), group: str = GROUP) -> list[int] | int:
        """Send LeaveGroup. Return the members' error codes, or the response's error code if it has one."""
        asked = Asked()
        leaving = [LEAVE_GROUP.Request.Members(member_id=id) for id in members]
        leaving += [LEAVE_GROUP.Request.Members(member_id="", group_instance_id=id) for id in instances]
        self.coordinator.leave(group, leaving, asked)
        if asked.code != Errors.NONE:
            return asked.code or 0
        return [one.error_code for one in asked.answer.members]

    def delete(self, *groups: str) -> Asked:
        asked = Asked()
        self.coordinator.delete(groups, asked)
        return asked

    def describe(self, group: str = GROUP) -> Any:
        return self.coordinator.describe([group])[0]

    # --- whole rebalances

    def stable(self, members: int = 1, **how: Any) -> list[str]:
        """Make a stable group. Return the member ids, with the leader's first. Each member's assignment is its id."""
        instances = how.pop("instances", [None] * members)
        asked = [self.join(instance=instance, **how) for instance in instances]
        self.timer.advance(self.settings["group.initial.rebalance.delay.ms"] / 1000 + 0.01)
        ids = [one.answer.member_id for one in asked]
        generation = asked[0].answer.generation_id
        assert all(one.answer.generation_id == generation for one in asked)
        protocol = asked[0].answer.protocol_name
        leader = asked[0].answer.leader
        others = [id for id in ids if id != leader]
        syncs = [self.sync(id, generation, protocol=protocol) for id in others]
        syncs.append(self.sync(leader, generation, {id: id.encode() for id in ids}, protocol=protocol))
        self.timer.advance(0.01)
        assert all(one.code == Errors.NONE for one in syncs), [one.code for one in syncs]
        return ids
