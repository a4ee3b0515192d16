"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

import pytest

from kafkapy.coordinator.groups.deleting import end
from kafkapy.coordinator.groups.group import DEAD, EMPTY, STABLE
from kafkapy.coordinator.offset_records import CommittedOffset, OffsetKey, decode_key
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.groups.world import GROUP, World
from tests.harness.offset_records import encode_offset, encode_offset_key


def commit(world: World, group: str = GROUP) -> None:
    record = (encode_offset_key(OffsetKey(group, "t", 0)), encode_offset(CommittedOffset(7)))
    world.shard.machine.group(group, create=True)
    world.shard.run(lambda machine: Effects([record]))


def emptied(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)


def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    world.stable(1)
    commit(world, "offsets only")

    def listed(states: list[str], types: list[str]) -> set[tuple[str, str, str, str]]:
        answer = world.coordinator.list(states, types)
        assert answer.error_code == Errors.NONE
        return {(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups}

    stable, empty = (GROUP, "consumer", "Stable", "classic"), ("offsets only", "", "Empty", "classic")
    assert listed([], []) == {stable, empty}
    assert listed(["sTABLE"], []) == {stable}
    assert listed(["Empty", "Stable"], ["Classic"]) == {stable, empty}
    assert listed(["Dead"], []) == set()
    assert listed(["no such state"], []) == set()
    assert listed([], ["consumer"]) == set()
    assert listed([], ["no such type"]) == set()


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    world = World()
    emptied(world)
    commit(world)
    asked = world.delete(GROUP)
    assert [(one.group_id, one.error_code) for one in asked.answer.results] == [(GROUP, Errors.NONE)]
    (offset, value), (group, metadata) = world.log.batches[-1][0]
    assert decode_key(offset) == OffsetKey(GROUP, "t", 0)
    assert value is None
    assert decode_key(group) == (GROUP,)
    assert metadata is None
    assert not world.shard.machine.groups
    assert world.shard.machine.offsets.tombstones(GROUP) == []


def test_a_group_that_only_had_offsets_has_no_record_to_delete() -> None:
    world = World()
    commit(world)
    world.delete(GROUP)
    assert [decode_key(key) for key, _ in world.log.batches[-1][0]] == [OffsetKey(GROUP, "t", 0)]
    assert not world.shard.machine.groups


def test_each_group_that_cannot_be_deleted_gets_its_error() -> None:
    world = World()
    world.stable(1)
    commit(world, "empty")
    asked = world.delete(GROUP, "nobody", "empty", "empty")
    assert [(one.group_id, one.error_code) for one in asked.answer.results] == [
        (GROUP, Errors.NON_EMPTY_GROUP),
        ("nobody", Errors.GROUP_ID_NOT_FOUND),
        ("empty", Errors.NONE),
    ]
    assert world.group.state == STABLE
    assert world.delete().answer.results == []


def test_a_group_that_is_being_deleted_takes_no_members_and_no_commits() -> None:
    world = World()
    emptied(world)
    world.log.held = True
    asked = world.delete(GROUP)
    assert not asked.is_answered
    assert world.group.state == DEAD
    assert world.join().code == Errors.COORDINATOR_NOT_AVAILABLE
    assert world.delete(GROUP).answer.results[0].error_code == Errors.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        world.group.check_commit("", None, -1, transactional=False)
    world.log.release()
    assert asked.answer.results[0].error_code == Errors.NONE
    again = world.join()
    world.timer.advance(0)
    assert again.answer.generation_id == 1


def test_a_deletion_that_cannot_be_written_leaves_the_group_there() -> None:
    world = World()
    emptied(world)
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    assert world.delete(GROUP).answer.results[0].error_code == Errors.COORDINATOR_NOT_AVAILABLE
    world.log.fails = None
    assert world.group.state == EMPTY
    assert world.delete(GROUP).answer.results[0].error_code == Errors.NONE


def test_a_group_whose_offsets_expired_ends_with_them() -> None:
    world = World()
    emptied(world)
    commit(world)
    world.shard.run(lambda machine: end(machine, machine.groups[GROUP], machine.offsets.tombstones(GROUP)))
    assert not world.shard.machine.groups
    assert [value for _, value in world.log.batches[-1][0]] == [None, None]
    assert len(world.timer) == 0
