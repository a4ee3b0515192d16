"""JoinGroup as in Kafka 3.9's GroupCoordinator: which members may join, their ids, and the responses."""

from __future__ import annotations

import pytest

from kafkapy.coordinator.groups import joining
from kafkapy.coordinator.groups.group import COMPLETING, EMPTY, PREPARING, STABLE
from kafkapy.errors import Errors
from kafkapy.protocol.apis import LEAVE_GROUP
from tests.coordinator.groups.world import GROUP, RANGE, Asked, World


def test_only_the_leader_gets_the_members() -> None:
    world = World()
    one, other = world.join(), world.join()
    world.timer.advance(0)
    assert one.answer.leader == other.answer.leader == one.answer.member_id
    assert [member.member_id for member in one.answer.members] == [one.answer.member_id, other.answer.member_id]
    assert other.answer.members == []


def test_a_static_member_needs_no_id() -> None:
    world = World()
    asked = world.join(instance="i1", needs_id=True)
    world.timer.advance(0)
    assert asked.code == Errors.NONE
    assert asked.answer.member_id.startswith("i1-")


def test_a_pending_id_expires_after_the_session_timeout() -> None:
    world = World()
    asked = world.join(needs_id=True, session_ms=6000)
    world.timer.advance(5.9)
    assert world.group.pending
    world.timer.advance(0.2)
    assert not world.group.pending
    assert world.join(asked.answer.member_id).code == Errors.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_ids() -> None:
    world = World()
    (first,) = world.stable(1)
    given = world.join(needs_id=True).answer.member_id
    again = world.join(first)
    assert not again.is_answered
    late = world.join(given)
    assert again.answer.generation_id == late.answer.generation_id == 2


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE), ("consumer", (("sticky", b""),)), ("consumer", ()), ("", RANGE)],
)
def test_protocols_that_do_not_fit_are_refused(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
    world = World()
    world.stable(1)
    refused = world.join(protocol_type=protocol_type, protocols=protocols)
    assert refused.code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state == STABLE
    assert len(world.group.members) == 1


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_first_member_must_name_a_protocol(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
    world = World()
    assert world.join(protocol_type=protocol_type, protocols=protocols).code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert not world.shard.machine.groups, "a refused join leaves no group behind"


def test_the_protocol_is_the_one_most_members_prefer_of_those_that_all_support() -> None:
    world = World()
    a, b, c = (("a", b""), ("b", b"")), (("b", b""), ("a", b"")), (("c", b""), ("b", b""), ("a", b""))
    asked = [world.join(protocols=protocols) for protocols in (a, b, c)]
    world.timer.advance(0)
    assert [one.answer.protocol_name for one in asked] == ["b", "b", "b"]


def test_a_member_that_missed_its_response_gets_it_again() -> None:
    world = World()
    one, other = world.join(), world.join()
    world.timer.advance(0)
    for asked in (one, other):
        again = world.join(asked.answer.member_id).answer
        assert again.generation_id == 1
        assert len(again.members) == (2 if asked is one else 0)
    assert world.group.state == COMPLETING


def test_changed_metadata_before_the_assignment_restarts_the_rebalance() -> None:
    world = World()
    one, other = world.join(), world.join()
    world.timer.advance(0)
    waits = world.sync(other.answer.member_id, 1)
    world.join(one.answer.member_id, protocols=(("range", b"new"),))
    assert waits.code == Errors.REBALANCE_IN_PROGRESS
    assert world.group.state == PREPARING


def test_the_initial_delay_is_extended_while_members_join() -> None:
    world = World(group_initial_rebalance_delay_ms=3000)
    first = world.join(rebalance_ms=10_000)
    world.timer.advance(2.9)
    assert not first.is_answered
    second = world.join(rebalance_ms=10_000)
    world.timer.advance(2.9)  # at 5.8 s: at 3 s the delay began again
    assert not first.is_answered
    world.timer.advance(0.3)
    assert first.answer.generation_id == second.answer.generation_id == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    world = World(group_initial_rebalance_delay_ms=3000)
    asked = [world.join(rebalance_ms=10_000)]
    for _ in range(9):
        world.timer.advance(1)
        asked.append(world.join(rebalance_ms=10_000))
    assert all(not one.is_answered for one in asked)
    world.timer.advance(1)
    assert {one.answer.generation_id for one in asked} == {1}


def test_an_emptied_group_has_one_initial_delay_for_its_next_members() -> None:
    world = World(group_initial_rebalance_delay_ms=3000)
    (member,) = world.stable(1)
    world.leave(member)
    assert world.group.state == EMPTY
    assert world.group.generation == 2
    first = world.join()
    world.timer.advance(2)
    second = world.join()
    world.timer.advance(1.1)
    assert first.answer.generation_id == second.answer.generation_id == 3


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    world = World()
    leader, lost = world.stable(2, rebalance_ms=7000, session_ms=20_000)
    asked = world.join(leader, rebalance_ms=5000, session_ms=20_000)
    world.timer.advance(6.9)
    assert not asked.is_answered
    world.timer.advance(0.2)
    assert asked.answer.generation_id == 2
    assert list(world.group.members) == [leader]
    assert world.heartbeat(lost, 1) == Errors.UNKNOWN_MEMBER_ID


def test_group_max_size_limits_the_members() -> None:
    world = World(group_max_size=2)
    asked = [world.join() for _ in range(3)]
    assert asked[2].code == Errors.GROUP_MAX_SIZE_REACHED
    assert asked[2].answer.member_id == ""
    world.timer.advance(0)
    assert [one.code for one in asked] == [Errors.NONE, Errors.NONE, Errors.GROUP_MAX_SIZE_REACHED]
    assert world.join().code == Errors.GROUP_MAX_SIZE_REACHED
    assert world.group.state == COMPLETING


def test_after_lowering_group_max_size_the_last_to_rejoin_are_refused() -> None:
    world = World()
    first, second, third = world.stable(3)
    world.settings["group.max.size"] = 2
    asked = [world.join(first), world.join(second)]
    assert world.join(third).code == Errors.GROUP_MAX_SIZE_REACHED
    assert [one.answer.generation_id for one in asked] == [2, 2], "the group does not wait for the refused member"
    assert set(world.group.members) == {first, second}


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    """The member cannot send heartbeats yet, so it may have given up and joined again with another id."""
    world = World()
    (first,) = world.stable(1, session_ms=1_800_000, rebalance_ms=1_800_000)
    asked = world.join(session_ms=6000, rebalance_ms=1_800_000)
    world.timer.advance(299)
    assert not asked.is_answered
    world.timer.advance(2)
    answer = asked.answer
    assert (answer.error_code, answer.member_id) == (Errors.UNKNOWN_MEMBER_ID, "")
    assert list(world.group.members) == [first]


def test_a_shard_that_ends_answers_all_waiting_members() -> None:
    world = World()
    (first,) = world.stable(1)
    waits = world.join()
    world.shard.end()
    assert waits.code == Errors.NOT_COORDINATOR
    assert world.join(first).code == Errors.NOT_COORDINATOR
    assert world.heartbeat(first, 1) == Errors.NOT_COORDINATOR
    assert world.describe("nobody").error_code == Errors.NOT_COORDINATOR
    assert len(world.timer) == 0


def test_one_session_check_serves_many_heartbeats() -> None:
    world = World()
    ids = world.stable(20, session_ms=10_000)
    before = world.timer.rung
    for _ in range(100):
        world.timer.advance(1)
        assert {world.heartbeat(id, 1) for id in ids} == {Errors.NONE}
    assert world.timer.rung - before <= 15
    assert world.group.id == GROUP


@pytest.mark.parametrize(("client", "instance"), [("x" * 32740, None), ("c", "x" * 32740), ("\ufffd" * 10920, None)])
def test_a_client_whose_name_leaves_no_room_for_a_member_id_is_refused(client: str, instance: str | None) -> None:
    world = World()
    assert world.join(client=client, instance=instance).code == Errors.INVALID_REQUEST
    assert not world.shard.machine.groups


def test_many_ids_that_expire_one_by_one_do_not_cause_a_check_each() -> None:
    world = World()
    for _ in range(1000):
        world.join(needs_id=True)
        world.timer.advance(0.001)
    before = world.timer.rung
    world.timer.advance(12)
    assert not world.group.pending
    assert world.timer.rung - before < 100


def test_the_log_names_the_member_that_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    _, second = world.stable(2)
    world.leave(second)
    assert f"group {GROUP!r} rebalances after generation 1: Member('{second}', " in caplog.text
    assert "left (no reason given)" in caplog.messages[-1]


def test_reasons_however_long_and_many_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    ids = world.stable(3)
    caplog.set_level("INFO", "kafkapy.coordinator.groups")
    make = LEAVE_GROUP.Request.Members
    leaving = [make(member_id=id, reason=f"{number}" * 30_000) for number, id in enumerate(ids[:2])]
    world.coordinator.leave(GROUP, leaving, Asked())
    (warning,) = [one.getMessage() for one in caplog.records if "rebalances after" in one.getMessage()]
    assert "left (0000" in warning
    assert len(warning) < 1500


def test_of_too_many_member_ids_that_nobody_uses_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MOST_PENDING", 3)
    world = World()
    handed_out = [world.join(needs_id=True).answer.member_id for _ in range(5)]
    assert list(world.group.pending) == handed_out[2:]
    assert world.join(handed_out[0]).code == Errors.UNKNOWN_MEMBER_ID
    world.join(handed_out[4])
    assert list(world.group.members) == [handed_out[4]]


def test_a_member_with_more_metadata_than_the_group_could_store_is_refused() -> None:
    world = World(message_max_bytes=1000)
    fits, too_large = bytes(1000 - len("range")), bytes(1001 - len("range"))
    assert world.join(protocols=[("range", too_large)]).code == Errors.INVALID_REQUEST
    many = [(f"protocol-{number}", bytes(91)) for number in range(10)]
    assert world.join(protocols=many).code == Errors.INVALID_REQUEST
    world.join(protocols=[("range", fits)])
    assert len(world.group.members) == 1
