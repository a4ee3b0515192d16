"""A decided transaction is completed in spite of failing partitions, failing appends and restarts."""

import threading

import pytest

from kafkapy.coordinator.shard import Producer
from kafkapy.errors import Errors, KafkaError, ProtocolError
from tests.coordinator.transactions.world import LEADER_EPOCH, World

P, Q = ("topic", 0), ("topic", 1)


@pytest.fixture
def world() -> World:
    return World()


def marked(world: World, producer: Producer, commit: bool = True) -> list[tuple[str, int]]:
    """Return the partitions with a marker. Assert that all markers are equal."""
    assert {one[:3] for one in world.markers.written} <= {(producer, LEADER_EPOCH, commit)}
    return [one[3] for one in world.markers.written]


@pytest.mark.parametrize(
    "code",
    [
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_ENOUGH_REPLICAS,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.REQUEST_TIMED_OUT,
    ],
)
def test_a_marker_that_fails_is_written_later(world: World, code: int) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[Q] = code
    assert world.commit("tx", producer) == Errors.NONE
    world.timer.advance(1500)
    assert world.state("tx") == "PrepareCommit"
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    world.markers.codes.clear()
    world.timer.advance(1)
    assert world.state("tx") == "CompleteCommit"
    assert marked(world, producer) == [P, Q]


def test_many_markers_are_written_by_the_pool(world: World) -> None:
    partitions = [("topic", index) for index in range(100)]
    producer = world.producer("tx")
    world.add("tx", producer, *partitions)
    world.markers.codes[("topic", 50)] = Errors.NOT_LEADER_OR_FOLLOWER
    assert world.commit("tx", producer) == Errors.NONE
    assert not world.markers.written
    world.run_pool()
    assert marked(world, producer) == [one for one in partitions if one != ("topic", 50)]
    assert world.coordinator.describe("tx").partitions == (("topic", (50,)),)
    world.markers.codes.clear()
    world.timer.advance(1)
    assert world.state("tx") == "CompleteCommit"
    assert set(marked(world, producer)) == set(partitions)


def test_many_markers_are_written_later_if_the_pool_has_no_thread(world: World) -> None:
    partitions = [("topic", index) for index in range(100)]
    producer = world.producer("tx")
    world.add("tx", producer, *partitions)
    world.threads = 0
    assert world.commit("tx", producer) == Errors.NONE
    world.timer.advance(10)
    assert world.state("tx") == "PrepareCommit"
    world.threads = 1
    world.timer.advance(1)
    world.run_pool()
    assert world.state("tx") == "CompleteCommit"
    assert marked(world, producer) == partitions


@pytest.mark.parametrize("code", [Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION])
def test_a_partition_that_can_have_no_markers_needs_none(world: World, code: int) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[P] = code
    world.abort("tx", producer)
    assert world.state("tx") == "CompleteAbort"
    assert marked(world, producer, False) == [Q]


def test_a_deleted_topic_does_not_delay_a_transaction(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[P] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    world.commit("tx", producer)
    assert world.state("tx") == "PrepareCommit"
    world.deleted.add(P)
    world.timer.advance(1)
    assert world.state("tx") == "CompleteCommit"


def test_a_partition_with_a_later_producer_epoch_needs_no_marker(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Here Kafka's coordinator would leave the transactional id unusable."""
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[P] = Errors.INVALID_PRODUCER_EPOCH
    world.commit("tx", producer)
    assert world.state("tx") == "CompleteCommit"
    assert marked(world, producer) == [Q]
    assert "topic-0 gets no marker of producer epoch 0 of 'tx'" in caplog.text


def test_a_fenced_coordinator_stops_completing(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.codes[P] = Errors.TRANSACTION_COORDINATOR_FENCED
    world.commit("tx", producer)
    world.markers.codes.clear()
    world.timer.advance(100)
    assert not world.markers.written
    assert world.commit("tx", producer) == Errors.CONCURRENT_TRANSACTIONS
    world.restart()
    assert world.state("tx") == "CompleteCommit"


def test_the_record_of_the_complete_state_is_retried_until_it_is_written(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.held = True
    world.commit("tx", producer)
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    world.release_markers()
    world.timer.advance(10)
    assert world.state("tx") == "PrepareCommit"
    assert world.add("tx", producer, Q) == Errors.CONCURRENT_TRANSACTIONS
    world.log.fails = None
    world.timer.advance(1)
    assert world.state("tx") == "CompleteCommit"
    assert marked(world, producer) == [P]
    assert world.coordinator.describe("tx").partitions == ()


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_completed_after_a_restart(world: World, commit: bool) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.held = True
    world.end("tx", producer, commit)
    world.restart()
    assert world.state("tx") == ("CompleteCommit" if commit else "CompleteAbort")
    assert marked(world, producer, commit) == [P, Q]
    world.restart()
    assert not world.markers.written


def test_an_open_transaction_continues_after_a_restart(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.restart()
    assert world.add("tx", producer, Q) == Errors.NONE
    assert world.commit("tx", producer) == Errors.NONE
    assert marked(world, producer) == [P, Q]


def test_records_of_later_versions_are_ignored(world: World, caplog: pytest.LogCaptureFixture) -> None:
    producer = world.producer("tx")
    strange = b"\0\7 whatever"
    world.log.batches.append(([(strange, b"something"), (strange, None), (strange, b"more")], None))
    world.restart()
    assert world.init("tx") == producer._replace(epoch=1)
    assert set(world.machine.entries) == {"tx"}
    (warning,) = caplog.messages
    assert (
        warning == f"__transaction_state-0 has records with keys of a later version of Kafka, which are ignored: "
        f"{strange.hex()}"
    )


def test_a_record_that_cannot_be_read_stops_the_load(world: World) -> None:
    world.producer("tx")
    ((key, value),) = world.log.records
    assert value is not None
    for damaged in (value[:-1], value[:16] + b"\x63" + value[17:], b"\0\7" + value[2:], b""):
        world.log.batches[-1] = ([(key, damaged)], None)
        with pytest.raises((ProtocolError, KafkaError)):
            world.restart()
    world.log.batches[-1] = ([(key[:3], value)], None)
    with pytest.raises(ProtocolError):
        world.restart()


def test_the_answer_to_a_marker_waits_for_no_lock_of_the_shard(world: World) -> None:
    """A deadlock: the thread that brings the answer may hold the lock of a group shard, and the end of a transaction,
    which writes a marker to the group's partition, takes the two locks in the other order."""
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.held = True
    world.commit("tx", producer)
    with world.shard._lock:
        answering = threading.Thread(target=world.markers.release, daemon=True)
        answering.start()
        answering.join(10)
        assert not answering.is_alive()
    world.timer.advance(0)
    assert world.state("tx") == "CompleteCommit"


def test_an_ended_shard_completes_no_transactions(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.held = True
    world.commit("tx", producer)
    world.shard.end()
    recorded = len(world.log.batches)
    world.release_markers()
    world.timer.advance(10)
    assert len(world.log.batches) == recorded


def test_an_append_that_outlives_its_shard_is_answered(world: World) -> None:
    producer = world.producer("tx")
    answers: list[int] = []
    world.log.held = True
    world.coordinator.add_partitions("tx", *producer, [P], answers.append)
    world.shard.end()
    world.log.release()
    assert answers == [Errors.NOT_COORDINATOR]
