"""Offset commits, alone, in transactions and with deletions, whose appends may wait or fail; and the resulting log."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from kafkapy.coordinator.groups.deleting import delete as delete_group
from kafkapy.coordinator.groups.group import DEAD, STABLE
from kafkapy.coordinator.offset_records import CommittedOffset, OffsetKey
from kafkapy.coordinator.shard import FAILED, Producer
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.offsets.world import World
from tests.harness.offset_records import encode_offset, encode_offset_key

NONE = Errors.NONE


def test_the_records_equal_kafkas(world: World) -> None:
    now = world.clock.time_ms()
    assert world.commit(world.offset("t", 3, 7, "why"), ("u", [(5, 9, 2, "", 1234)])) == [NONE, NONE]
    assert world.commit(world.offset("t", 4, 8), expires=now + 5) == [NONE]
    assert world.log.batches == [
        (
            [
                (encode_offset_key(OffsetKey("g", "t", 3)), encode_offset(CommittedOffset(7, -1, "why", now))),
                (encode_offset_key(OffsetKey("g", "u", 5)), encode_offset(CommittedOffset(9, 2, "", 1234))),
            ],
            None,
        ),
        ([(encode_offset_key(OffsetKey("g", "t", 4)), encode_offset(CommittedOffset(8, -1, "", now, now + 5)))], None),
    ]


def test_an_offset_is_visible_once_its_record_is_in_the_log(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 2))
    assert answer == []
    assert world.committed() == {("t", 0): 1}
    assert world.codes("g", ("t", 0), ("t", 1)) == [Errors.UNSTABLE_OFFSET_COMMIT, NONE]
    world.log.release()
    assert answer == [[NONE]]
    assert world.committed() == {("t", 0): 2}
    assert world.codes("g", ("t", 0)) == [NONE]


def test_overtaking_commits_are_applied_in_log_order(world: World) -> None:
    world.log.held = True
    answer = [world.begin_commit(world.offset("t", 0, offset)) for offset in (1, 2, 3)]
    world.log.release()
    assert answer == [[[NONE]]] * 3
    assert world.committed() == {("t", 0): 3}


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_COORDINATOR),
        (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR),
        (Errors.MESSAGE_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_failed_append_keeps_the_committed_offset(world: World, failure: int, code: int) -> None:
    world.commit(world.offset("t", 0, 1))
    world.log.fails = KafkaError(failure, "in this test")
    too_long = world.offset("t", 1, 1, "m" * 4097)
    assert world.commit(world.offset("t", 0, 2), too_long) == [code, Errors.OFFSET_METADATA_TOO_LARGE]
    assert world.committed() == {("t", 0): 1}
    assert world.codes("g", ("t", 0), ("t", 1)) == [NONE, NONE]


def test_nothing_is_appended_if_all_metadata_is_too_long(world: World) -> None:
    assert world.commit(world.offset("t", 0, 1, "m" * 4097)) == [Errors.OFFSET_METADATA_TOO_LARGE]
    assert world.log.batches == []


def test_the_limit_of_metadata_counts_utf_16_units(world: World) -> None:
    world.settings["offset.metadata.max.bytes"] = 4
    too_long = Errors.OFFSET_METADATA_TOO_LARGE
    assert world.commit(
        world.offset("t", 0, 1, "éééé"), world.offset("t", 1, 1, "😀😀"), world.offset("t", 2, 1, "😀😀é")
    ) == [NONE, NONE, too_long]
    world.settings["offset.metadata.max.bytes"] = 1 << 20
    # the setting allows this length, but a string in a record does not
    assert world.commit(world.offset("t", 0, 1, "é" * 16384)) == [too_long]


def test_the_last_offset_of_a_partition_named_twice_is_committed(world: World) -> None:
    codes = world.commit(world.offset("t", 0, 1), world.offset("t", 1, 5), world.offset("t", 0, 2))
    assert codes == [NONE, NONE, NONE]
    assert len(world.log.records) == 2
    assert world.committed() == {("t", 0): 2, ("t", 1): 5}


def test_a_commit_too_large_for_a_batch_is_refused_early(world: World) -> None:
    offsets = [world.offset("t", partition, 1) for partition in range(30_000)]
    assert world.commit(*offsets) == [Errors.INVALID_COMMIT_OFFSET_SIZE] * 30_000
    assert world.log.batches == []


def test_a_slow_append_times_out_and_is_applied_later(world: World) -> None:
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 1), world.offset("t", 1, 1))
    world.timer.advance(4.9)
    assert answer == []
    world.timer.advance(0.2)
    assert answer == [[Errors.REQUEST_TIMED_OUT] * 2]
    world.log.release()
    assert answer == [[Errors.REQUEST_TIMED_OUT] * 2]
    assert world.committed() == {("t", 0): 1, ("t", 1): 1}


def test_an_append_leaves_no_timer(world: World) -> None:
    world.log.held = True
    world.begin_commit(world.offset("t", 0, 1))
    world.log.release()
    world.commit(world.offset("t", 0, 2))
    assert len(world.timer) == 0


def test_an_inactive_shard_refuses_each_offset(world: World) -> None:
    world.shards.refusal = KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    assert world.commit(world.offset("t", 0, 1), world.offset("t", 1, 1)) == [Errors.COORDINATOR_LOAD_IN_PROGRESS] * 2


def test_a_group_id_too_long_for_a_record_is_refused(world: World) -> None:
    assert world.commit(world.offset("t", 0, 1), group="g" * 32768) == [Errors.INVALID_GROUP_ID]
    assert world.commit(world.offset("t", 0, 1), group="é" * 16384) == [Errors.INVALID_GROUP_ID]
    assert world.commit(world.offset("t", 0, 1), group="g" * 32767) == [NONE]


def test_a_group_being_deleted_refuses_commits(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.group().state = DEAD
    assert world.commit(world.offset("t", 0, 2)) == [Errors.COORDINATOR_NOT_AVAILABLE]
    assert world.committed() == {}


# --- transactions


def test_a_transactional_commit_is_one_batch_of_its_producer(world: World) -> None:
    producer = Producer(5, 1)
    assert world.commit(world.offset("t", 0, 1), world.offset("t", 1, 2), producer=producer) == [NONE, NONE]
    ((records, appended_by),) = world.log.batches
    assert appended_by == producer
    assert len(records) == 2
    assert world.committed() == {}
    assert world.codes("g", ("t", 0)) == [Errors.UNSTABLE_OFFSET_COMMIT]
    calls: list[str] = []
    world.offsets.transaction_ended(7, 5, True, lambda: calls.append("then"))
    assert calls == ["then"]
    assert world.committed() == {("t", 0): 1, ("t", 1): 2}


def test_another_partitions_marker_and_another_producers_change_nothing(world: World) -> None:
    world.commit(world.offset("t", 0, 1), producer=Producer(5, 0))
    world.offsets.transaction_ended(8, 5, True)
    world.offsets.transaction_ended(7, 6, True)
    assert world.committed() == {}
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == {("t", 0): 1}


def test_a_shard_ends_if_there_is_no_memory_to_commit_the_offsets_of_a_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(world.offset("t", 0, 1))
    world.commit(world.offset("t", 0, 2), producer=Producer(5, 0))
    store = world.machine.offsets
    table = Mock(wraps=store.table, end_transaction=Mock(side_effect=MemoryError))
    monkeypatch.setattr(store, "table", table)
    world.offsets.transaction_ended(7, 5, True)
    assert world.shard.state == FAILED
    with pytest.raises(KafkaError) as refused:
        world.codes("g", ("t", 0))  # must not return the offset before the transaction
    assert refused.value.code == Errors.NOT_COORDINATOR


def test_an_abort_before_the_callback_of_an_append_leaves_no_unstable_offsets(world: World) -> None:
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 1), producer=Producer(5, 0))
    world.offsets.transaction_ended(7, 5, False)
    world.log.fails = KafkaError(Errors.INVALID_PRODUCER_EPOCH, "fenced")
    world.log.release()
    assert answer == [[Errors.INVALID_PRODUCER_EPOCH]]
    assert world.codes("g", ("t", 0)) == [NONE]


@pytest.mark.parametrize("commits", [False, True])
def test_a_marker_reported_before_a_pending_commit_ends_that_commit(world: World, commits: bool) -> None:
    world.log.held = True
    world.begin_commit(world.offset("t", 0, 1), producer=Producer(5, 0))
    world.offsets.transaction_ended(7, 5, commits)
    world.log.release()
    assert world.committed() == ({("t", 0): 1} if commits else {})
    world.commit(world.offset("t", 1, 2), producer=Producer(5, 1))
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == ({("t", 0): 1, ("t", 1): 2} if commits else {("t", 1): 2})
    assert world.codes("g", ("t", 0), ("t", 1)) == [NONE, NONE]


def test_a_producer_without_an_id_has_no_transaction(world: World) -> None:
    codes = world.commit(world.offset("t", 0, 1), producer=Producer(-1, 0))
    assert codes == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert world.committed() == {}


def test_a_marker_during_a_fetch_of_all_offsets_makes_no_old_offset_stable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(world.offset("t", 0, 1))
    world.commit(world.offset("t", 0, 2), producer=Producer(5, 0))
    read = world.shard.read

    def read_and_end(look: Any) -> Any:
        found = read(look)
        world.offsets.transaction_ended(7, 5, True)
        return found

    monkeypatch.setattr(world.shard, "read", read_and_end)
    ((_, _, (code, _)),) = world.offsets.fetch_all("g", require_stable=True)
    assert code == Errors.UNSTABLE_OFFSET_COMMIT
    assert world.committed() == {("t", 0): 2}


# --- deletion


def delete(world: World, *partitions: tuple[str, int], group: str = "g") -> tuple[int, list[int]]:
    calls: list[tuple[int, list[int]]] = []
    world.offsets.delete(group, partitions, lambda code, codes: calls.append((code, codes)))
    (answer,) = calls
    return answer


def test_deletion_writes_tombstones_for_existing_offsets(world: World) -> None:
    world.commit(world.offset("t", 0, 1), world.offset("t", 1, 1))
    assert delete(world, ("t", 1), ("t", 2), ("t", 1)) == (NONE, [NONE, NONE, NONE])
    assert world.log.batches[-1] == ([(encode_offset_key(OffsetKey("g", "t", 1)), None)], None)
    assert world.committed() == {("t", 0): 1}
    assert "g" in world.machine.groups


def test_staged_offsets_are_deleted_too(world: World) -> None:
    world.commit(world.offset("t", 0, 1), world.offset("t", 1, 1), producer=Producer(5, 0))
    assert delete(world, ("t", 0)) == (NONE, [NONE])
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == {("t", 1): 1}


def test_a_group_of_other_members_than_consumers_keeps_its_offsets(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.group().state, world.group().protocol_type = STABLE, "connect"
    assert delete(world, ("t", 0)) == (Errors.NON_EMPTY_GROUP, [])
    assert world.committed() == {("t", 0): 1}


def test_a_failed_deletion_keeps_the_group(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.log.fails = KafkaError(Errors.KAFKA_STORAGE_ERROR, "in this test")
    assert delete(world, ("t", 0)) == (NONE, [NONE])  # Kafka also answers with NONE
    assert world.committed() == {("t", 0): 1}
    world.log.fails = None
    assert world.commit(world.offset("t", 0, 2)) == [NONE]


def test_a_pending_commit_is_deleted_with_its_group(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 2), world.offset("t", 1, 2))
    world.shard.run(lambda machine: delete_group(machine, "g", lambda error: None))
    world.log.release()
    assert answer == [[NONE, NONE]]
    assert "g" not in world.machine.groups
    assert world.commit(world.offset("t", 2, 3)) == [NONE]
    assert world.committed() == {("t", 2): 3}


def test_a_transaction_that_commits_after_its_group_was_deleted_recreates_the_group(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.commit(world.offset("t", 1, 2), producer=Producer(5, 0))
    world.shard.run(lambda machine: delete_group(machine, "g", lambda error: None))
    assert world.committed() == {}
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == {("t", 1): 2}


def test_the_offsets_of_a_deleted_topic_are_deleted(world: World) -> None:
    for number in range(50):
        world.commit(world.offset("t", 0, 1), world.offset("t", 1, 1), world.offset("u", 0, 1), group=f"g{number}")
    world.commit(world.offset("t", 2, 9), group="only", producer=Producer(5, 0))
    world.commit(world.offset("t", 2, 8), group="last")
    world.offsets.topic_deleted("t", {0, 2})
    for number in range(50):
        assert world.committed(f"g{number}") == {("t", 1): 1, ("u", 0): 1}
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed("only") == {}
    assert world.committed("last") == {}
    assert "last" not in world.machine.groups
    world.offsets.topic_deleted("no-such-topic", {0})


def test_a_pending_commit_is_deleted_with_its_topic(world: World) -> None:
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 1), world.offset("u", 0, 1))
    world.offsets.topic_deleted("t", {0})
    world.log.release()
    assert answer == [[NONE, NONE]]
    assert world.committed() == {("u", 0): 1}


def delete_topic(world: World) -> None:
    world.offsets.topic_deleted("t", {0})


def delete_offsets(world: World) -> None:
    assert delete(world, ("t", 0)) == (NONE, [NONE])


@pytest.mark.parametrize("deletion", [delete_topic, delete_offsets])
def test_a_pending_commit_of_a_transaction_is_deleted_too(world: World, deletion: Callable[[World], None]) -> None:
    world.log.held = True
    answer = world.begin_commit(world.offset("t", 0, 5), world.offset("u", 0, 6), producer=Producer(5, 0))
    deletion(world)
    assert world.codes("g", ("t", 0), ("u", 0)) == [NONE, Errors.UNSTABLE_OFFSET_COMMIT]
    again = world.begin_commit(world.offset("t", 0, 1), producer=Producer(6, 0))  # to the topic created again
    world.log.release()
    assert (answer, again) == ([[NONE, NONE]], [[NONE]])
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == {("u", 0): 6}
    assert world.codes("g", ("t", 0)) == [Errors.UNSTABLE_OFFSET_COMMIT]
    world.offsets.transaction_ended(7, 6, True)
    assert world.committed() == {("t", 0): 1, ("u", 0): 6}
    assert [value for _, value in world.log.records if value is None] == []  # only committed offsets get tombstones


def test_a_commit_in_the_next_transaction_is_unstable_when_the_marker_of_the_last_one_comes_late(world: World) -> None:
    world.log.held = True
    world.begin_commit(world.offset("t", 0, 1), producer=Producer(5, 0))
    world.offsets.transaction_ended(7, 5, True)
    world.begin_commit(world.offset("t", 0, 2), producer=Producer(5, 0))
    world.log.release()
    assert world.committed() == {("t", 0): 1}
    assert world.codes("g", ("t", 0)) == [Errors.UNSTABLE_OFFSET_COMMIT]
    world.offsets.transaction_ended(7, 5, True)
    assert world.committed() == {("t", 0): 2}
    assert world.codes("g", ("t", 0)) == [NONE]


def test_offsets_of_a_deleted_topic_are_not_read_while_their_deletion_waits_for_the_disk(world: World) -> None:
    world.commit(world.offset("t", 0, 1), world.offset("u", 0, 1))
    world.log.held = True
    world.offsets.topic_deleted("t", {0})
    assert world.committed() == {("u", 0): 1}
    answer = world.begin_commit(world.offset("t", 0, 2))
    world.log.release()
    assert answer == [[NONE]]
    assert world.committed() == {("t", 0): 2, ("u", 0): 1}


def test_a_failed_deletion_of_a_topics_offsets_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for group in ("g", "h"):
        world.commit(world.offset("t", 0, 1), group=group)
    world.log.fails = KafkaError(Errors.KAFKA_STORAGE_ERROR, "in this test")
    world.offsets.topic_deleted("t", {0})
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        "committed offsets of the deleted topic t could not be deleted in __consumer_offsets-7: "
        "KAFKA_STORAGE_ERROR: in this test"
    ]
    assert world.committed() == {}


def test_a_partition_stays_unstable_when_one_of_two_commits_of_a_transaction_fails(world: World) -> None:
    """The append of the first commit fails, and that of the second, which is already in progress, succeeds."""
    producer = Producer(5, 0)
    world.commit(world.offset("t", 0, 1))
    world.log.held = True
    first = world.begin_commit(world.offset("t", 0, 2), producer=producer)
    second = world.begin_commit(world.offset("t", 0, 3), producer=producer)
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    world.log.finish_next()
    world.log.fails = None
    assert first == [[Errors.COORDINATOR_NOT_AVAILABLE]]
    assert world.codes("g", ("t", 0)) == [Errors.UNSTABLE_OFFSET_COMMIT], "the second may still be written"
    world.log.release()
    assert second == [[NONE]]
    assert world.codes("g", ("t", 0)) == [Errors.UNSTABLE_OFFSET_COMMIT]
    world.offsets.transaction_ended(7, 5, True)
    assert world.codes("g", ("t", 0)) == [NONE]
    assert world.committed() == {("t", 0): 3}


def test_a_partition_is_stable_when_both_commits_of_a_transaction_fail(world: World) -> None:
    world.commit(world.offset("t", 0, 1))
    world.log.held = True
    for offset in (2, 3):
        world.begin_commit(world.offset("t", 0, offset), producer=Producer(5, 0))
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    world.log.release()
    assert world.codes("g", ("t", 0)) == [NONE]
    assert world.machine.offsets._transactions == {}
