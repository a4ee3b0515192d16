"""SyncGroup, Heartbeat, LeaveGroup and session expiry."""

from __future__ import annotations

import pytest

from kafkapy.coordinator.groups.group import COMPLETING, EMPTY, PREPARING, STABLE
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.groups.world import Asked, World


def joined(world: World, members: int) -> tuple[list[str], int]:
    """Make a group wait for the leader's assignment. Return (member ids, with the leader's first, generation)."""
    asked = [world.join() for _ in range(members)]
    world.timer.advance(0.01)
    return [one.answer.member_id for one in asked], asked[0].answer.generation_id


def test_every_member_gets_its_assignment_from_the_leader() -> None:
    world = World()
    (leader, follower, silent), generation = joined(world, 3)
    early = world.sync(follower, generation)
    assert not early.is_answered
    leads = world.sync(leader, generation, {leader: b"1", follower: b"2"})
    assert (leads.answer.assignment, early.answer.assignment) == (b"1", b"2")
    assert (early.answer.protocol_type, early.answer.protocol_name) == ("consumer", "range")
    assert world.group.state == STABLE
    late = world.sync(silent, generation).answer
    assert (late.error_code, late.assignment) == (Errors.NONE, b""), "whoever the leader forgot gets nothing"


def test_assignments_are_sent_only_after_they_are_written() -> None:
    world = World()
    (leader,), generation = joined(world, 1)
    world.log.held = True
    asked = world.sync(leader, generation, {leader: b"1"})
    assert not asked.is_answered
    assert world.group.state == COMPLETING
    world.log.release()
    assert asked.answer.assignment == b"1"
    assert world.group.state == STABLE


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_COORDINATOR),
        (Errors.REQUEST_TIMED_OUT, Errors.REBALANCE_IN_PROGRESS),
        (Errors.MESSAGE_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_written_begins_another_rebalance(failure: int, expected: int) -> None:
    world = World()
    (leader, follower), generation = joined(world, 2)
    world.log.fails = KafkaError(failure)
    waits = world.sync(follower, generation)
    leads = world.sync(leader, generation, {leader: b"1", follower: b"2"})
    assert (waits.code, leads.code) == (expected, expected)
    assert world.group.state == PREPARING
    assert all(member.assignment == b"" for member in world.group.members.values())
    world.log.fails = None
    world.join(leader)
    again = world.join(follower)
    assert again.answer.generation_id == generation + 1


def test_an_assignment_that_is_written_when_the_next_rebalance_has_begun_changes_nothing() -> None:
    world = World()
    (leader, follower), generation = joined(world, 2)
    world.log.held = True
    asked = world.sync(leader, generation, {leader: b"1"})
    world.leave(follower)
    assert asked.code == Errors.REBALANCE_IN_PROGRESS
    world.log.release()
    assert world.group.state == PREPARING
    assert world.group.members[leader].assignment == b""


def test_a_sync_is_refused() -> None:
    world = World()
    assert world.sync("m", 1).code == Errors.UNKNOWN_MEMBER_ID
    (leader, _), generation = joined(world, 2)
    assert world.sync("nobody", generation).code == Errors.UNKNOWN_MEMBER_ID
    assert world.sync(leader, generation - 1).code == Errors.ILLEGAL_GENERATION
    assert world.sync(leader, generation + 1).code == Errors.ILLEGAL_GENERATION
    assert world.sync(leader, generation, protocol="sticky").code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(leader, generation, protocol_type="connect").code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state == COMPLETING
    assert world.sync(leader, generation, protocol=None, protocol_type=None).code == Errors.NONE
    world.join(leader)
    assert world.sync(leader, generation).code == Errors.REBALANCE_IN_PROGRESS


def test_members_that_send_no_sync_are_removed() -> None:
    world = World()
    asked = [world.join(rebalance_ms=8000, session_ms=60_000) for _ in range(3)]
    world.timer.advance(0)
    ids = [one.answer.member_id for one in asked]
    world.sync(ids[0], 1, {})
    world.sync(ids[1], 1)
    world.timer.advance(7.9)
    assert world.group.state == STABLE
    world.timer.advance(0.2)
    assert world.group.state == PREPARING
    assert set(world.group.members) == set(ids[:2])


def test_a_leader_that_sends_no_sync_is_removed() -> None:
    world = World()
    asked = [world.join(rebalance_ms=8000, session_ms=60_000) for _ in range(2)]
    world.timer.advance(0)
    leader, follower = (one.answer.member_id for one in asked)
    waits = world.sync(follower, 1)
    world.timer.advance(8.1)
    assert waits.code == Errors.REBALANCE_IN_PROGRESS
    again = world.join(follower, rebalance_ms=8000)
    assert again.answer.leader == follower != leader


# --- heartbeats and sessions


def test_a_heartbeat_is_answered_by_state() -> None:
    world = World()
    assert world.heartbeat("m", 1) == Errors.UNKNOWN_MEMBER_ID
    (leader, follower), generation = joined(world, 2)
    assert world.heartbeat(follower, generation) == Errors.NONE
    world.sync(leader, generation, {})
    assert world.heartbeat(follower, generation) == Errors.NONE
    assert world.heartbeat("nobody", generation) == Errors.UNKNOWN_MEMBER_ID
    assert world.heartbeat(follower, generation - 1) == Errors.ILLEGAL_GENERATION
    world.join(leader)
    assert world.heartbeat(follower, generation) == Errors.REBALANCE_IN_PROGRESS


def test_an_expired_session_removes_the_member_and_rebalances() -> None:
    world = World()
    leader, silent = world.stable(2, session_ms=6000)
    for _ in range(3):
        world.timer.advance(1.9)
        assert world.heartbeat(leader, 1) == Errors.NONE
    world.timer.advance(0.5)
    assert world.heartbeat(leader, 1) == Errors.REBALANCE_IN_PROGRESS
    assert world.heartbeat(silent, 1) == Errors.UNKNOWN_MEMBER_ID
    assert world.join(leader).answer.generation_id == 2


def test_the_last_expired_session_leaves_an_empty_group() -> None:
    world = World()
    world.stable(2, session_ms=6000)
    world.timer.advance(6.1)
    assert world.group.state == EMPTY
    assert world.group.generation == 2
    assert world.group_records()[-1].members == []
    assert len(world.timer) == 0


def test_a_member_that_waits_for_a_response_does_not_expire() -> None:
    world = World()
    leader, other = world.stable(2, session_ms=6000, rebalance_ms=60_000)
    waits = world.join(leader, session_ms=6000)
    for _ in range(10):
        world.timer.advance(5)
        world.heartbeat(other, 1)
    assert not waits.is_answered
    assert leader in world.group.members
    world.join(other, session_ms=6000)
    assert waits.answer.generation_id == 2
    world.timer.advance(5.9)
    assert leader in world.group.members, "its session began with the answer"
    world.timer.advance(0.2)
    assert leader not in world.group.members


def test_a_commit_extends_the_session() -> None:
    world = World()
    (member,) = world.stable(1, session_ms=6000)
    for _ in range(5):
        world.timer.advance(5)
        world.group.check_commit(member, None, 1, transactional=False)
    assert member in world.group.members


# --- leaving


def test_a_member_that_leaves_is_gone_at_once() -> None:
    world = World()
    leader, other = world.stable(2)
    assert world.leave(leader) == [Errors.NONE]
    assert world.group.state == PREPARING
    assert world.group.leader == other
    assert world.join(other).answer.generation_id == 2


def test_the_last_member_that_leaves_leaves_an_empty_group() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(member)
    assert world.group.state == EMPTY
    record = world.group_records()[-1]
    assert (record.generation, record.protocol, record.leader, record.members) == (2, None, None, [])
    assert record.protocol_type == "consumer"


def test_leaving_an_unknown_group_is_refused() -> None:
    assert World().leave("m") == [Errors.UNKNOWN_MEMBER_ID]


def test_a_rebalance_completes_when_the_last_missing_member_leaves() -> None:
    world = World()
    leader, other = world.stable(2)
    waits = world.join(leader)
    world.leave(other)
    assert waits.answer.generation_id == 2


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    world = World()
    (leader, follower), generation = joined(world, 2)
    waits = world.sync(follower, generation)
    world.leave(follower)
    assert waits.code == Errors.UNKNOWN_MEMBER_ID
    joins = world.join(leader)
    assert joins.answer.generation_id == 2
    new = world.join()
    world.leave(new_id(world, leader))
    assert new.code == Errors.UNKNOWN_MEMBER_ID


def new_id(world: World, *known: str) -> str:
    return next(id for id in world.group.members if id not in known)


# --- commits


def test_commits_are_accepted_by_member_and_generation() -> None:
    world = World()
    leader, other = world.stable(2)

    def refused(member: str, generation: int, instance: str | None = None, *, transactional: bool = False) -> int:
        try:
            world.group.check_commit(member, instance, generation, transactional=transactional)
        except KafkaError as error:
            return error.code
        return Errors.NONE

    assert refused(leader, 1) == Errors.NONE
    assert refused("nobody", 1) == Errors.UNKNOWN_MEMBER_ID
    assert refused(leader, 0) == Errors.ILLEGAL_GENERATION
    assert refused("", -1) == Errors.UNKNOWN_MEMBER_ID
    assert refused("", -1, transactional=True) == Errors.NONE
    assert refused(leader, -1) == Errors.ILLEGAL_GENERATION
    assert refused(leader, 1, "i1") == Errors.UNKNOWN_MEMBER_ID
    world.join(leader)
    assert refused(other, 1) == Errors.NONE, "what was read before the rebalance may be committed"
    world.join(other)
    assert refused(other, 2) == Errors.REBALANCE_IN_PROGRESS
    assert refused(other, 2, transactional=True) == Errors.NONE
    world.leave(leader, other)
    assert world.group.state == EMPTY
    assert refused("", -1) == Errors.NONE
    assert refused(leader, 2) == Errors.UNKNOWN_MEMBER_ID


# --- many members


def test_responses_to_many_members_are_sent_in_slices() -> None:
    world = World()
    asked: list[Asked] = [world.join() for _ in range(200)]
    world.timer.advance(0)
    assert 0 < sum(one.is_answered for one in asked) < 100
    assert asked[0].answer.leader == asked[0].answer.member_id, "the leader's comes first: it has work to do"
    world.timer.advance(0.02)
    assert {one.code for one in asked} == {Errors.NONE}
    assert len(asked[0].answer.members) == 200


def test_queued_responses_are_sent_before_the_shard_ends() -> None:
    world = World()
    asked = [world.join() for _ in range(200)]
    world.timer.advance(0)
    world.shard.end()
    assert all(one.is_answered for one in asked)
