"""Offsets expire by the rules of Kafka's GroupMetadata.removeExpiredOffsets."""

from typing import Any

import pytest

from kafkapy.coordinator.groups.group import EMPTY, PREPARING, STABLE
from kafkapy.coordinator.offset_records import encode_group_key
from kafkapy.coordinator.shard import Producer
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.offsets.world import MINUTE, World


def consumers(world: World, state: str, *topics: str) -> Any:
    group = world.group()
    group.protocol_type = "consumer"
    group.generation = 3
    group.move_to(state)
    group._topics = set(topics)
    return group


def test_the_offsets_of_a_simple_consumer_count_from_their_own_commit(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.clock.advance(6 * MINUTE)
    world.commit(world.offset("t", 1, 1))
    world.clock.advance(4 * MINUTE - 1)
    world.offsets.expire()
    assert world.committed() == {("t", 0): 1, ("t", 1): 1}
    world.clock.advance(1)
    world.offsets.expire()
    assert world.committed() == {("t", 1): 1}
    world.clock.advance(6 * MINUTE)
    world.offsets.expire()
    assert world.committed() == {}
    assert world.machine.groups == {}


def test_the_offsets_of_a_group_count_from_when_it_became_empty(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.clock.advance(100 * MINUTE)
    consumers(world, EMPTY)
    world.clock.advance(9 * MINUTE)
    world.offsets.expire()
    assert world.committed() == {("t", 0): 1}
    world.clock.advance(MINUTE)
    world.offsets.expire()
    assert world.machine.groups == {}
    assert world.log.records[-1] == (encode_group_key("g"), None)


def test_a_group_record_without_state_timestamp_expires_offsets_by_their_commit_time(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.clock.advance(10 * MINUTE)
    consumers(world, EMPTY).current_state_timestamp_ms = None
    world.offsets.expire()
    assert world.machine.groups == {}


def test_members_keep_the_offsets_of_the_topics_that_they_read(world: World) -> None:
    world.commit(world.offset("read", 0, 1), world.offset("left", 0, 1))
    consumers(world, STABLE, "read")
    world.clock.advance(10 * MINUTE)
    world.commit(world.offset("left", 1, 1), member="m", generation=3, group="other")
    world.offsets.expire()
    assert world.committed() == {("read", 0): 1}


@pytest.mark.parametrize("kind", ["rebalancing", "connect", "the topics are unknown"])
def test_the_offsets_of_other_groups_with_members_stay(world: World, kind: str) -> None:
    world.commit(world.offset("t", 0, 1))
    group = consumers(world, PREPARING if kind == "rebalancing" else STABLE)
    if kind == "connect":
        group.protocol_type = "connect"
    if kind == "the topics are unknown":
        group._topics = None
    world.clock.advance(1000 * MINUTE)
    world.offsets.expire()
    assert world.committed() == {("t", 0): 1}


def test_a_commit_with_an_expire_timestamp_expires_then(world: World) -> None:
    soon, late = world.clock.time_ms() + 1000, world.clock.time_ms() + 1000 * 1000
    world.commit(world.offset("t", 0, 1), expires=soon)
    world.commit(world.offset("t", 1, 1), expires=late)
    world.commit(world.offset("t", 2, 1))
    world.clock.advance(1)
    world.offsets.expire()
    assert world.committed() == {("t", 1): 1, ("t", 2): 1}
    world.clock.advance(10 * MINUTE)
    world.offsets.expire()
    assert world.committed() == {("t", 1): 1}


def test_a_commit_with_an_expire_timestamp_expires_in_an_empty_group_too(world: World) -> None:
    world.commit(world.offset("t", 0, 1), expires=world.clock.time_ms() + 1)
    world.commit(world.offset("t", 1, 1))
    consumers(world, EMPTY)
    world.clock.advance(1)
    world.offsets.expire()
    assert world.committed() == {("t", 1): 1}


def test_offsets_in_pending_commits_do_not_expire(world: World) -> None:
    world.commit(world.offset("t", 0, 1), world.offset("t", 1, 1))
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 2))
    world.clock.advance(10 * MINUTE)
    world.offsets.expire()
    world.log.release()
    assert answer == [[Errors.NONE]]
    assert world.committed() == {("t", 0): 2}


def test_a_group_with_an_open_transaction_stays(world: World) -> None:
    world.commit(world.offset("t", 0, 1), producer=Producer(5, 0))
    world.clock.advance(10 * MINUTE)
    world.offsets.expire()
    assert "g" in world.machine.groups
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == {("t", 0): 1}


def test_many_offsets_expire_in_small_batches(world: World) -> None:
    world.commit(*(world.offset("t", partition, 1) for partition in range(1000)))
    batches = len(world.log.batches)
    world.clock.advance(10 * MINUTE)
    world.offsets.expire()
    assert world.committed() == {}
    assert all(len(records) <= 31 for records, _ in world.log.batches[batches:])
    assert len(world.machine.offsets) == 0


def test_offsets_whose_tombstones_failed_expire_at_the_next_scan(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.clock.advance(10 * MINUTE)
    world.log.fails = KafkaError(Errors.KAFKA_STORAGE_ERROR, "in this test")
    world.offsets.expire()
    assert world.committed() == {("t", 0): 1}
    world.log.fails = None
    world.offsets.expire()
    assert world.machine.groups == {}


def test_groups_without_expired_offsets_stay(world: World) -> None:
    for number in range(200):
        world.commit(world.offset("t", number, 1), group=f"g{number}")
    batches = len(world.log.batches)
    world.offsets.expire()
    assert len(world.machine.groups) == 200
    assert len(world.log.batches) == batches
