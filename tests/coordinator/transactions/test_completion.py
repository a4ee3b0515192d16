"""A decided transaction is completed: through failures of partitions and of the log, and after a restart."""

import pytest

from kafkapy.coordinator.shard import Producer
from kafkapy.errors import Errors, KafkaError, ProtocolError
from tests.coordinator.transactions.world import LEADER_EPOCH, World

P, Q = ("topic", 0), ("topic", 1)


@pytest.fixture
def world() -> World:
    return World()


def marked(world: World, producer: Producer, commit: bool = True) -> list[tuple[str, int]]:
    """The partitions with a marker; all are alike."""
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


def test_many_markers_are_left_to_the_pool(world: World) -> None:
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


@pytest.mark.parametrize("code", [Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION])
def test_a_partition_that_can_have_no_markers_needs_none(world: World, code: int) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[P] = code
    world.abort("tx", producer)
    assert world.state("tx") == "CompleteAbort"
    assert marked(world, producer, False) == [Q]


def test_a_deleted_topic_does_not_hold_a_transaction_up(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[P] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    world.commit("tx", producer)
    assert world.state("tx") == "PrepareCommit"
    world.deleted.add(P)
    world.timer.advance(1)
    assert world.state("tx") == "CompleteCommit"


def test_where_a_later_epoch_has_written_nothing_is_left_to_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka leaves the id in this state for ever."""
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.codes[P] = Errors.INVALID_PRODUCER_EPOCH
    world.commit("tx", producer)
    assert world.state("tx") == "CompleteCommit"
    assert marked(world, producer) == [Q]
    assert "topic-0 needs no marker of epoch 0 of 'tx'" in caplog.text


def test_where_another_coordinator_took_over_this_one_stops(world: World) -> None:
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


def test_the_last_record_is_tried_again_until_it_is_there(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.held = True
    world.commit("tx", producer)
    world.log.fails = KafkaError(Errors.NOT_ENOUGH_REPLICAS)
    world.markers.let_go()
    world.timer.advance(10)
    assert world.state("tx") == "PrepareCommit"
    assert world.add("tx", producer, Q) == Errors.CONCURRENT_TRANSACTIONS
    world.log.fails = None
    world.timer.advance(1)
    assert world.state("tx") == "CompleteCommit"
    assert marked(world, producer) == [P]
    assert world.coordinator.describe("tx").partitions == ()


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_is_completed_after_a_restart(world: World, commit: bool) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    world.markers.held = True
    world.end("tx", producer, commit)
    world.restart()
    assert world.state("tx") == ("CompleteCommit" if commit else "CompleteAbort")
    assert marked(world, producer, commit) == [P, Q]
    world.restart()
    assert not world.markers.written


def test_after_a_restart_a_transaction_goes_on(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.restart()
    assert world.add("tx", producer, Q) == Errors.NONE
    assert world.commit("tx", producer) == Errors.NONE
    assert marked(world, producer) == [P, Q]


def test_records_of_later_versions_are_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    producer = world.producer("tx")
    strange = b"\0\7 whatever"
    world.log.batches.append(([(strange, b"something"), (strange, None), (strange, b"more")], None))
    world.restart()
    assert world.init("tx") == producer._replace(epoch=1)
    assert set(world.machine.entries) == {"tx"}
    (said,) = caplog.messages
    assert said == f"__transaction_state-0: records with keys of a later version are left alone: {strange.hex()}"


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


def test_a_shard_that_ended_completes_nothing(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.held = True
    world.commit("tx", producer)
    world.shard.end()
    recorded = len(world.log.batches)
    world.markers.let_go()
    world.timer.advance(10)
    assert len(world.log.batches) == recorded


def test_an_append_that_outlives_its_shard_is_answered(world: World) -> None:
    producer = world.producer("tx")
    answers: list[int] = []
    world.log.held = True
    world.coordinator.add_partitions("tx", *producer, [P], answers.append)
    world.shard.end()
    world.log.let_go()
    assert answers == [Errors.NOT_COORDINATOR]
