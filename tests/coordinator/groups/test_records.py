"""The group metadata records: their bytes, and the groups that a load makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkapy.coordinator.groups.group import EMPTY, PREPARING, STABLE, Group
from kafkapy.coordinator.groups.records import group_of, group_record
from kafkapy.coordinator.offset_records import GroupKey, decode_group, decode_key
from kafkapy.errors import Errors
from kafkapy.protocol.consumer_protocol import SUBSCRIPTION
from kafkapy.record.batch import records_of
from kafkapy.runtime.clock import ManualClock
from tests.coordinator.groups.world import GROUP, World
from tests.harness.batches import iter_batches

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def groups_of_kafka() -> list[tuple[str, bytes, bytes]]:
    """Return (group, key, value) of every group metadata record in the directories of Kafka 3.9.1."""
    found = []
    for log in sorted(GOLDEN.glob("kafka-3.9.1-*/data/__consumer_offsets-*/*.log")):
        data = log.read_bytes()
        for batch in iter_batches(data):
            if batch.is_control:
                continue
            for record in records_of(data, batch):
                key = decode_key(record.key or b"")
                if isinstance(key, GroupKey) and record.value is not None:
                    found.append((key.group, bytes(record.key or b""), bytes(record.value)))
    return found


def test_a_group_written_by_kafka_is_encoded_to_the_same_bytes() -> None:
    groups = groups_of_kafka()
    assert any(decode_group(value).members for _, _, value in groups)
    for group_id, key, value in groups:
        found = decode_group(value)
        group = group_of(group_id, found, ManualClock())
        assert group.state == (STABLE if found.members else EMPTY)
        assignments = {member.id: member.assignment for member in group.members.values()}
        assert group_record(group, assignments) == (key, value)


def test_a_stable_group_is_the_same_after_a_restart() -> None:
    world = World()
    ids = world.stable(3, protocols=(("range", subscription("t")), ("sticky", b"")))
    before, shown = world.group, shape(world.group)
    world.restart()
    after = world.group
    assert after is not before
    assert shape(after) == shown
    assert after.subscribed_topics() == {"t"}
    for id in ids:
        assert world.heartbeat(id, 1) == Errors.NONE
        assert world.sync(id, 1).answer.assignment == id.encode()


def test_sessions_restart_after_a_restart() -> None:
    world = World()
    here, lost = world.stable(2, session_ms=6000)
    world.timer.advance(5)
    world.restart()
    world.timer.advance(5)
    assert world.heartbeat(here, 1) == Errors.NONE
    world.timer.advance(1.1)
    assert set(world.group.members) == {here}
    assert world.group.state == PREPARING
    assert world.heartbeat(lost, 1) == Errors.UNKNOWN_MEMBER_ID


def test_a_rebalance_starts_over_after_a_restart() -> None:
    world = World()
    leader, other = world.stable(2)
    waits = world.join(leader)
    world.restart()
    assert waits.code == Errors.NOT_COORDINATOR
    assert world.group.state == STABLE
    assert world.group.generation == 1
    waits = world.join(leader)
    world.join(other)
    assert waits.answer.generation_id == 2


def test_static_members_are_known_after_a_restart() -> None:
    world = World()
    member, _ = world.stable(2, instances=["i1", "i2"])
    back = world.join(instance="i1").answer
    world.restart()
    assert world.heartbeat(member, 1, instance="i1") == Errors.FENCED_INSTANCE_ID
    assert world.heartbeat(back.member_id, 1, instance="i1") == Errors.NONE
    assert world.sync(back.member_id, 1, instance="i1").answer.assignment == member.encode()


def test_an_emptied_group_is_empty_after_a_restart_since_the_same_time() -> None:
    world = World()
    (member,) = world.stable(1)
    world.timer.advance(3)
    world.leave(member)
    emptied = world.group.current_state_timestamp_ms
    world.timer.advance(60)
    world.restart()
    assert world.group.state == EMPTY
    assert world.group.generation == 2
    assert world.group.current_state_timestamp_ms == emptied
    assert world.group.subscribed_topics() == set()


def test_a_group_with_more_members_than_it_may_have_rebalances_after_a_restart() -> None:
    world = World()
    ids = world.stable(3)
    world.settings["group.max.size"] = 2
    world.restart()
    assert world.group.state == PREPARING
    asked = [world.join(id) for id in ids]
    assert [one.code for one in asked] == [Errors.NONE, Errors.NONE, Errors.GROUP_MAX_SIZE_REACHED]


def test_a_deleted_group_is_gone_after_a_restart() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(member)
    world.delete(GROUP)
    world.restart()
    assert not world.shard.machine.groups


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        ("subscribed", {"a", "b"}),
        ("with what version 0 does not have", {"a", "b"}),
        ("garbage", None),
        ("nothing", None),
    ],
)
def test_subscribed_topics_are_read_where_they_can_be(metadata: str, topics: set[str] | None) -> None:
    expected = {
        "subscribed": subscription("a", "b"),
        "with what version 0 does not have": b"\0\3" + subscription("a", "b")[2:] + b"\xff\xff",
        "garbage": b"\xff\xff\0",
        "nothing": b"",
    }[metadata]
    world = World()
    world.stable(2, protocols=(("range", expected),))
    assert world.group.subscribed_topics() == topics


def test_topics_of_other_groups_than_consumers_are_not_known() -> None:
    world = World()
    asked = world.join(protocol_type="connect", protocols=(("default", b""),))
    world.timer.advance(0)
    assert asked.code == Errors.NONE
    assert world.group.subscribed_topics() is None


def subscription(*topics: str) -> bytes:
    return SUBSCRIPTION.encode(SUBSCRIPTION.Message(topics=list(topics), owned_partitions=[]), 1)


def shape(group: Group) -> Any:
    """Return the part of a group's state that a restart must not change."""
    members = [
        (one.id, one.instance_id, one.client_id, one.client_host, one.session_ms, one.rebalance_ms, one.assignment)
        for one in group.members.values()
    ]
    return (group.generation, group.protocol_type, group.protocol, group.leader, group.state, group.static, members)


def test_a_recorded_leader_that_is_not_a_member_is_replaced() -> None:
    world = World()
    ids = world.stable(2)
    found = decode_group(group_record(world.group, {})[1])
    found.leader = "nobody"
    assert group_of(GROUP, found, ManualClock()).leader == ids[0]
