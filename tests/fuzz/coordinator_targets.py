"""Fuzz targets of the coordinators: records of their topics, members' subscriptions, and sequences of requests."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from kafkapy.coordinator.group_machine import GroupMachine
from kafkapy.coordinator.groups.group import Group
from kafkapy.coordinator.groups.member import Member
from kafkapy.coordinator.transaction_records import STATES, TRANSACTION_LOG_VALUE, decode_key, decode_state, encode_key
from kafkapy.errors import KafkaError, ProtocolError
from kafkapy.protocol.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, Api
from kafkapy.protocol.consumer_protocol import PROTOCOL_TYPE, SUBSCRIPTION
from kafkapy.record.batch import BatchBuilder
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.world import Asked, World
from tests.fuzz.offset_targets import joined, records
from tests.fuzz.table_targets import steps, taken
from tests.fuzz.target import Target


def parted(view: memoryview) -> tuple[bytes, bytes]:
    """Return key and value of a `joined` record."""
    split = 2 + int.from_bytes(view[:2], "big")
    return bytes(view[2:split]), bytes(view[split:])


@cache
def transaction_records() -> tuple[bytes, ...]:
    """Return records of every state, with and without partitions, as Kafka 3.9 writes them and in flexible versions."""
    found = []
    for state in range(len(STATES)):
        topics = [
            TRANSACTION_LOG_VALUE.Message.TransactionPartitions(topic=topic, partition_ids=[0, 7]) for topic in "ab"
        ]
        message = TRANSACTION_LOG_VALUE.Message(transaction_status=state, transaction_partitions=topics[: state % 3])
        value = [TRANSACTION_LOG_VALUE.encode(message, version) for version in (0, 1)]
        found += [joined(encode_key("id"), one) for one in value]
    return tuple(found)


def fuzz_group_records(view: memoryview, rng: random.Random) -> None:
    """Loaded groups can be used: they go through a rebalance, and are written again."""
    key, value = parted(view)
    world = World()

    def load(machine: GroupMachine) -> None:
        builder = BatchBuilder()
        builder.append(0, b"\0\2" + key[2:] if rng.random() < 0.5 else key, value)
        machine.replay_block(memoryview(bytearray(builder.build())))

    world._start(load)
    for group in list(world.shard.machine.groups.values()):
        world.coordinator.describe([group.id])
        for member in list(group.members.values()):
            names = [(name, b"") for name, _ in member.protocols]
            kind, id = group.protocol_type or "", member.id
            world.join(id, group=group.id, protocol_type=kind, protocols=names, instance=member.instance_id)
    world.timer.advance(2**31)
    assert all(not group.members for group in world.shard.machine.groups.values())


def fuzz_transaction_records(view: memoryview, rng: random.Random) -> None:
    key, value = parted(view)
    decode_key(key)
    assert decode_state(value).state_name


def fuzz_subscription(view: memoryview, rng: random.Random) -> None:
    """Any subscription of a member gives its topics, or None if it cannot be decoded."""
    group = Group("g", ManualClock())
    for number, data in enumerate((bytes(view), bytes(view[: len(view) // 2]))):
        member = Member(str(number), None, "c", "/h", rebalance_ms=1, session_ms=1, protocols=(("p", data),))
        group.add(member, PROTOCOL_TYPE, None)
    group.next_generation()
    found = group.subscribed_topics()
    assert found is None or all(type(topic) is str for topic in found)


TIMES = (-(2**31), -1, 0, 1, 5999, 6000, 10_000, 1_800_000, 1_800_001, 2**31 - 1)
NAMES = ("", "a", "b", "\0", "x" * 32767)


class Crowd:
    """Members that send random requests. Every request gets one response in the end, and each can be encoded.

    One exception: of two waiting requests of the same member, the first gets no response, as in Kafka.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.asked: list[tuple[Api, Asked]] = []
        self.displaced: list[object] = []
        self.ids = ["", "nobody"]

    def member(self, group_id: str, id: str) -> Member | None:
        group = self.world.shard.machine.groups.get(group_id)
        return None if group is None else group.members.get(id)

    def join(self, which: int, other: int) -> None:
        names = [(NAMES[(other >> shift) % len(NAMES)], b"m") for shift in range(other % 4)]
        id, group = self.ids[which % len(self.ids)], NAMES[1 + which // 64]
        member = self.member(group, id)
        before = member.join_reply if member is not None else None
        asked = self.world.join(
            id,
            instance=self.rng.choice((None, None, "i", *NAMES)),
            protocols=names,
            protocol_type=NAMES[other % 3],
            session_ms=TIMES[which % len(TIMES)] if other & 64 else 10_000,
            rebalance_ms=TIMES[other % len(TIMES)],
            needs_id=bool(which & 1),
            client=NAMES[which % len(NAMES)],
            group=group,
        )
        self.asked.append((JOIN_GROUP, asked))
        if member is not None and member.join_reply is asked:
            self.displaced.append(before)
        if asked.answer is not None and asked.answer.member_id:
            self.ids.append(asked.answer.member_id)

    def sync(self, which: int, other: int) -> None:
        id, group = self.ids[which % len(self.ids)], NAMES[1 + which // 64]
        present = self.world.shard.machine.groups.get(group)
        generation = present.generation if present is not None and other % 8 else other - 2
        assignments = {id: b"a", "nobody": b"b", "": b""}
        kind = NAMES[other % 3] if present is None else present.protocol_type
        name = "" if present is None else present.protocol
        member = self.member(group, id)
        before = member.sync_reply if member is not None else None
        asked = self.world.sync(id, generation, assignments, protocol_type=kind, protocol=name, group=group)
        self.asked.append((SYNC_GROUP, asked))
        if member is not None and member.sync_reply is asked:
            self.displaced.append(before)

    def others(self, which: int, other: int) -> None:
        id, group, coordinator = self.ids[which % len(self.ids)], NAMES[which // 64], self.world.coordinator
        asked = Asked()
        if other & 1:
            self.asked.append((HEARTBEAT, asked))
            coordinator.heartbeat(group, id, None, other % 5, asked)
        else:
            self.asked.append((LEAVE_GROUP, asked))
            make: Any = LEAVE_GROUP.Request.Members
            gone = [make(member_id=id), make(member_id="", group_instance_id="i"), make(member_id=id)]
            coordinator.leave(group, gone[: other % 4], asked)


def fuzz_members(view: memoryview, rng: random.Random) -> None:
    world = World(group_max_size=4, group_initial_rebalance_delay_ms=rng.choice((0, 3000)))
    crowd = Crowd(world, rng)
    for what, which, other in taken(view):
        if what < 110:
            crowd.join(which, other)
        elif what < 190:
            crowd.sync(which, other)
        elif what < 230:
            crowd.others(which, other)
        else:
            world.timer.advance((0.001, 1.0, 7.0, 61.0)[other % 4])
        crowd.ids += [
            id for group in world.shard.machine.groups.values() for id in group.members if id not in crowd.ids
        ]
    world.timer.advance(2**31)
    for api, asked in crowd.asked:
        if not asked.is_answered:
            assert any(asked is one for one in crowd.displaced)
            continue
        for version in range(5, api.max_version + 1):
            if api is JOIN_GROUP and version < 7 and asked.answer.protocol_name is None:
                continue
            api.encode_response(asked.answer, max(version, api.min_version))
    assert all(not group.members and not group.pending for group in world.shard.machine.groups.values())


def targets() -> list[Target]:
    subscriptions = [
        SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=["a", "ä", "c" * 249]), version) for version in range(4)
    ]
    damage = (ProtocolError, KafkaError, ValueError)  # errors that end the load of a partition
    return [
        Target("group_records", records(), fuzz_group_records, damage),
        Target("transaction_records", transaction_records(), fuzz_transaction_records, damage),
        Target("subscriptions", subscriptions, fuzz_subscription, ()),
        Target("members", (b"",), fuzz_members, (), steps),
    ]
