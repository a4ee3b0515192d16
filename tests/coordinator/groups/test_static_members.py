"""Static members (KIP-345) rejoin with a new id, their old id is fenced, and they can be removed."""

from __future__ import annotations

from kafkapy.coordinator.groups.group import EMPTY, PREPARING
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.groups.world import World

BOTH = (("range", b"r"), ("sticky", b"s"))


def static(world: World, *instances: str) -> list[str]:
    return world.stable(len(instances), instances=list(instances))


def test_the_new_id_is_written_before_the_member_gets_it() -> None:
    world = World()
    (member,) = static(world, "i1")
    world.log.held = True
    asked = world.join(instance="i1")
    assert not asked.is_answered
    assert world.heartbeat(member, 1, instance="i1") == Errors.NONE, "until then it is the old one"
    world.log.release()
    record = world.group_records()[-1]
    assert [one.member_id for one in record.members] == [asked.answer.member_id]
    assert record.leader == asked.answer.member_id
    assert record.members[0].assignment == member.encode()


def test_a_new_id_that_cannot_be_written_changes_nothing() -> None:
    world = World()
    (member,) = static(world, "i1")
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    refused = world.join(instance="i1").answer
    assert (refused.error_code, refused.member_id) == (Errors.COORDINATOR_NOT_AVAILABLE, "")
    assert world.heartbeat(member, 1, instance="i1") == Errors.NONE
    assert world.group.static == {"i1": member}


def test_a_static_member_that_rejoins_with_other_protocols_rebalances_only_if_the_choice_changes() -> None:
    world = World()
    world.stable(2, instances=["i1", "i2"], protocols=BOTH)
    same = world.join(instance="i2", protocols=(("sticky", b"s"), ("range", b"r")))
    assert same.answer.generation_id == 1
    assert same.answer.protocol_name == "range"
    other = world.join(instance="i2", protocols=(("sticky", b"s"),))
    assert not other.is_answered
    assert world.group.state == PREPARING


def test_static_members_may_be_away_during_a_rebalance() -> None:
    world = World()
    leader, absent = world.stable(2, instances=["i1", "i2"], session_ms=60_000, rebalance_ms=6000)
    asked = world.join(leader, instance="i1", session_ms=60_000, rebalance_ms=6000)
    world.timer.advance(6.1)
    assert asked.answer.generation_id == 2
    assert {one.member_id for one in asked.answer.members} == {leader, absent}
    world.sync(leader, 2, {leader: b"1", absent: b"2"}, instance="i1")
    assert world.sync(world.join(instance="i2").answer.member_id, 2, instance="i2").answer.assignment == b"2"


def test_a_group_whose_static_members_are_all_away_waits_for_their_sessions() -> None:
    world = World()
    world.stable(2, instances=["i1", "i2"], session_ms=20_000, rebalance_ms=6000)
    world.leave(instances=["i1"])
    assert world.group.state == PREPARING
    world.timer.advance(19)
    assert world.group.state == PREPARING
    assert world.group.generation == 1
    world.timer.advance(1.1)
    assert world.group.state == EMPTY
    assert world.group.generation == 2


def test_an_instance_that_left_meanwhile_is_not_replaced() -> None:
    world = World()
    (member,) = static(world, "i1")
    world.log.held = True
    back = world.join(instance="i1")
    world.leave(member)
    world.log.release()
    assert back.code == Errors.UNKNOWN_MEMBER_ID
    assert world.group.state == EMPTY
    assert not world.group.static


def test_the_session_of_a_static_member_does_not_expire_while_its_new_id_is_written() -> None:
    world = World()
    static(world, "i1")
    world.timer.advance(9)
    world.log.held = True
    back = world.join(instance="i1")
    world.timer.advance(9)
    world.log.release()
    assert (back.code, back.answer.generation_id) == (Errors.NONE, 1)
    assert world.heartbeat(back.answer.member_id, 1, instance="i1") == Errors.NONE


def test_two_concurrent_rejoins_of_an_instance_keep_the_last_id() -> None:
    world = World()
    static(world, "i1")
    world.log.held = True
    first, second = world.join(instance="i1"), world.join(instance="i1")
    world.log.release()
    assert first.code == second.code == Errors.NONE
    assert world.group.static == {"i1": second.answer.member_id}
    assert world.heartbeat(first.answer.member_id, 1, instance="i1") == Errors.FENCED_INSTANCE_ID
    assert [one.member_id for one in world.group_records()[-1].members] == [second.answer.member_id]


def test_static_members_that_rejoin_together_are_all_loaded() -> None:
    world = World()
    instances = ["i1", "i2", "i3", "i4"]
    before = static(world, *instances)
    world.log.held = True
    asked = {instance: world.join(instance=instance) for instance in instances}
    world.log.release()
    ids = {instance: one.answer.member_id for instance, one in asked.items()}
    world.restart()
    assert world.group.static == ids
    assert world.group.leader == ids["i1"]
    assert {i: world.heartbeat(id, 1, instance=i) for i, id in ids.items()} == dict.fromkeys(ids, Errors.NONE)
    assert [world.group.members[id].assignment for id in ids.values()] == [id.encode() for id in before]


def test_a_failed_rejoin_is_in_no_later_record() -> None:
    world = World()
    first, _ = static(world, "i1", "i2")
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    assert world.join(instance="i1").code == Errors.COORDINATOR_NOT_AVAILABLE
    world.log.fails = None
    second = world.join(instance="i2").answer.member_id
    world.restart()
    assert world.group.static == {"i1": first, "i2": second}


def test_a_static_member_that_rejoins_takes_part_in_a_rebalance_that_began_meanwhile() -> None:
    world = World()
    _, follower = static(world, "i1", "i2")
    world.log.held = True
    back = world.join(instance="i1")
    other = world.join(follower, instance="i2", protocols=(("range", b"new"),))
    world.log.release()
    assert back.answer.generation_id == other.answer.generation_id == 2
    assert back.answer.leader == back.answer.member_id


def test_static_members_that_come_back_without_a_common_protocol_do_not_block_the_group() -> None:
    world = World()
    times = {"session_ms": 60_000, "rebalance_ms": 6000}
    world.stable(2, instances=["i1", "i2"], protocols=BOTH, **times)
    world.log.held = True
    first = world.join(instance="i1", protocols=(("range", b"r"),), **times)
    second = world.join(instance="i2", protocols=(("sticky", b"s"),), **times)
    world.log.release()
    assert first.code == Errors.INCONSISTENT_GROUP_PROTOCOL
    world.timer.advance(6.1)
    assert (second.answer.generation_id, second.answer.protocol_name) == (2, "sticky")


def test_absent_static_members_with_no_rebalance_timeout_cause_no_busy_loop() -> None:
    world = World()
    asked = world.join(instance="i1", session_ms=20_000)
    world.timer.advance(0.01)
    world.sync(asked.answer.member_id, 1, instance="i1")
    world.group.members[asked.answer.member_id].rebalance_ms = 0
    world.join(instance="i2", rebalance_ms=0, session_ms=20_000)
    world.leave(instances=["i2"])
    assert world.group.state == PREPARING
    before = world.timer.rung
    world.timer.advance(15)
    assert 5 < world.timer.rung - before < 20
    world.timer.advance(6)
    assert world.group.state == EMPTY
