"""The transaction coordinator: producer ids and epochs, allowed state changes, and error codes."""

import logging

import pytest

from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.transactions.views import Filters, Listed
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.transactions.world import LEADER_EPOCH, World

P, Q = ("topic", 0), ("topic", 1)
OTHER = ("other", 3)


@pytest.fixture
def world() -> World:
    return World()


def exhausted(world: World, transactional_id: str = "tx") -> Producer:
    """Set the producer epoch of the transactional id to the last one. Return the producer."""
    producer = world.producer(transactional_id)
    entry = world.machine.entries[transactional_id]
    assert entry.state is not None
    entry.state = entry.state._replace(producer_epoch=32766)
    return producer._replace(epoch=32766)


# --- InitProducerId


def test_a_new_client_is_not_logged_at_info(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafkapy"):  # Spark does this for each task of each epoch
        world.init("tx")
        world.init("tx")
    assert caplog.records == []


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_allowed_is_refused(world: World, timeout_ms: int) -> None:
    assert world.init("tx", timeout_ms) == Errors.INVALID_TRANSACTION_TIMEOUT
    assert not world.log.batches


def test_an_id_that_no_record_can_hold_is_an_invalid_request(world: World) -> None:
    for longest in ("x" * 32767, "é" * 16383):
        assert isinstance(world.init(longest), Producer)
        assert world.init(longest + "x" * 2) == Errors.INVALID_REQUEST
    assert len(world.machine.entries) == 2


def test_an_unknown_producer_gets_a_new_producer_id(world: World) -> None:
    assert world.init("tx", expected=Producer(77, 5)) == Producer(1000, 0)


def test_a_client_with_the_last_epoch_gets_a_new_producer_id(world: World) -> None:
    exhausted(world)
    assert world.init("tx") == Producer(1001, 0)


def test_a_continuing_client_with_the_last_epoch_gets_one_new_producer_id(world: World) -> None:
    last = exhausted(world)
    assert world.init("tx", expected=last) == Producer(1001, 0)
    assert world.init("tx", expected=last) == Producer(1001, 0)
    assert world.init("tx", expected=Producer(1001, 0)) == Producer(1001, 1)
    assert world.init("tx", expected=last) == Errors.PRODUCER_FENCED


def test_a_producer_gets_a_new_id_when_fencing_has_used_up_its_epochs(world: World) -> None:
    last = exhausted(world)
    assert world.add("tx", last, P) == Errors.NONE
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    assert world.markers.written == [(Producer(last.id, 32767), LEADER_EPOCH, False, P)]
    assert world.init("tx") == Producer(1001, 0)


def test_a_new_client_aborts_the_transaction_of_the_one_before(world: World) -> None:
    old = world.producer("tx")
    world.add("tx", old, P)
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    assert world.markers.written == [(Producer(old.id, 1), LEADER_EPOCH, False, P)]
    assert world.state("tx") == "CompleteAbort"
    assert world.init("tx") == Producer(old.id, 2)
    assert world.commit("tx", old) == Errors.PRODUCER_FENCED


def test_a_new_client_waits_until_the_transaction_before_is_complete(world: World) -> None:
    old = world.producer("tx")
    world.add("tx", old, P)
    world.markers.held = True
    world.commit("tx", old)
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    world.release_markers()
    assert world.init("tx") == Producer(old.id, 1)


# --- the steps of a transaction


def test_a_transaction_is_recorded_step_by_step(world: World) -> None:
    producer = world.producer("tx", timeout_ms=5000)
    world.clock.advance(1)
    began = world.clock.time_ms()
    assert world.add("tx", producer, P) == Errors.NONE
    world.clock.advance(1)
    assert world.add("tx", producer, OTHER, Q) == Errors.NONE
    world.clock.advance(1)
    assert world.commit("tx", producer) == Errors.NONE
    both = (("topic", (0, 1)), ("other", (3,)))
    assert [(one.state_name, one.partitions, one.start_ms - began) for one in world.states_in_log() if one] == [
        ("Empty", (), -1 - began),
        ("Ongoing", (("topic", (0,)),), 0),
        ("Ongoing", both, 0),
        ("PrepareCommit", both, 0),
        ("CompleteCommit", (), 0),
    ]
    assert {one and (one.producer_id, one.producer_epoch, one.timeout_ms) for one in world.states_in_log()} == {
        (producer.id, 0, 5000)
    }
    assert [one and one.last_update_ms - began for one in world.states_in_log()] == [-1000, 0, 1000, 2000, 2000]
    assert world.markers.written == [(producer, LEADER_EPOCH, True, one) for one in (P, Q, OTHER)]


def test_the_next_transaction_begins_without_partitions(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.abort("tx", producer)
    world.clock.advance(3)
    assert world.add("tx", producer, Q) == Errors.NONE
    state = world.coordinator.describe("tx")
    assert state.partitions == (("topic", (1,)),)
    assert state.start_ms == world.clock.time_ms()


def test_partitions_that_are_in_the_transaction_are_not_recorded_again(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P, Q)
    recorded = len(world.log.batches)
    assert world.add("tx", producer, Q) == Errors.NONE
    assert len(world.log.batches) == recorded


def test_requests_of_another_producer_are_refused(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    for wrong, code in [
        (producer._replace(id=1), Errors.INVALID_PRODUCER_ID_MAPPING),
        (producer._replace(epoch=1), Errors.PRODUCER_FENCED),
        (producer._replace(epoch=-1), Errors.PRODUCER_FENCED),
    ]:
        assert world.add("tx", wrong, Q) == code
        assert world.commit("tx", wrong) == code
        assert world.verify("tx", wrong, P) == [code]
    assert world.add("unknown", producer, P) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert world.abort("unknown", producer) == Errors.INVALID_PRODUCER_ID_MAPPING
    assert world.verify("unknown", producer, P, Q) == [Errors.INVALID_PRODUCER_ID_MAPPING] * 2


def test_each_partition_is_verified(world: World) -> None:
    producer = world.producer("tx")
    assert world.verify("tx", producer, P) == [Errors.TRANSACTION_ABORTABLE]
    world.add("tx", producer, P)
    assert world.verify("tx", producer, P, Q) == [Errors.NONE, Errors.TRANSACTION_ABORTABLE]
    world.markers.held = True
    world.commit("tx", producer)
    assert world.verify("tx", producer, P) == [Errors.CONCURRENT_TRANSACTIONS]
    world.release_markers()
    assert world.verify("tx", producer, P) == [Errors.TRANSACTION_ABORTABLE]


# --- one change at a time


def test_requests_during_an_append_get_concurrent_transactions(world: World) -> None:
    producer = world.producer("tx")
    world.log.held = True
    assert world.add("tx", producer, P) is None
    assert world.add("tx", producer, Q) == Errors.CONCURRENT_TRANSACTIONS
    assert world.commit("tx", producer) == Errors.CONCURRENT_TRANSACTIONS
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    assert world.add("tx", producer._replace(epoch=5), Q) == Errors.PRODUCER_FENCED
    assert world.state("tx") == "Empty"
    world.log.release()
    assert world.state("tx") == "Ongoing"
    assert world.commit("tx", producer) == Errors.NONE


def test_two_first_clients_of_an_id_do_not_both_get_it(world: World) -> None:
    world.log.held = True
    assert world.init("tx") is None
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    assert world.add("tx", Producer(1000, 0), P) == Errors.INVALID_PRODUCER_ID_MAPPING
    world.log.release()
    assert len(world.log.batches) == 1


def test_requests_while_markers_are_written_get_concurrent_transactions(world: World) -> None:
    producer = world.producer("tx")
    world.add("tx", producer, P)
    world.markers.held = True
    assert world.commit("tx", producer) == Errors.NONE
    assert world.state("tx") == "PrepareCommit"
    for code in (world.add("tx", producer, Q), world.commit("tx", producer), world.abort("tx", producer)):
        assert code == Errors.CONCURRENT_TRANSACTIONS
    world.release_markers()
    assert world.state("tx") == "CompleteCommit"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.REQUEST_TIMED_OUT, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR),
        (Errors.MESSAGE_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_append_that_fails_changes_nothing(world: World, failure: int, code: int) -> None:
    world.log.fails = KafkaError(failure)
    assert world.init("new") == code
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.coordinator.describe("new")

    world.log.fails = None
    producer = world.producer("tx")
    world.log.fails = KafkaError(failure)
    assert world.init("tx", expected=producer) == code
    assert world.add("tx", producer, P) == code
    assert world.state("tx") == "Empty"

    world.log.fails = None
    assert world.add("tx", producer, P) == Errors.NONE
    world.log.fails = KafkaError(failure)
    assert world.commit("tx", producer) == code
    assert world.init("tx") == code  # the append that fences fails, too
    assert world.state("tx") == "Ongoing"
    assert not world.markers.written

    world.log.fails = None
    assert world.commit("tx", producer) == Errors.NONE
    assert world.state("tx") == "CompleteCommit"


# --- descriptions, lists and log lines


def test_a_prepared_transaction_is_described_with_its_unmarked_partitions(world: World) -> None:
    producer = world.producer("tx", timeout_ms=1234)
    world.add("tx", producer, P, Q, OTHER)
    world.markers.codes[Q] = Errors.NOT_LEADER_OR_FOLLOWER
    world.commit("tx", producer)
    state = world.coordinator.describe("tx")
    assert state.state_name == "PrepareCommit"
    assert state.partitions == (("topic", (1,)),)
    assert state.timeout_ms == 1234
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.coordinator.describe("unknown")


def test_lists_are_filtered_by_state_producer_and_duration(world: World) -> None:
    idle, working, done = (world.producer(name) for name in ("idle", "working", "done"))
    world.add("done", done, P)
    world.abort("done", done)
    world.clock.advance(10)
    world.add("working", working, P)
    world.clock.advance(5)

    def names(**filters: object) -> set[str]:
        return {one.transactional_id for one in world.coordinator.list(Filters(**filters))}  # type: ignore[arg-type]

    assert names() == {"idle", "working", "done"}
    assert names(states=frozenset({"Ongoing", "Nonsense"})) == {"working"}
    assert names(states=frozenset({"Nonsense"})) == set()
    assert names(producer_ids=frozenset({idle.id, done.id})) == {"idle", "done"}
    assert names(duration_ms=4999) == {"idle", "working", "done"}
    assert names(duration_ms=5000) == {"idle", "done"}  # in Kafka, an idle id counts as begun at -1
    assert names(duration_ms=0, states=frozenset({"Ongoing"})) == {"working"}
    assert Filters(states=frozenset({"Ongoing", "Nonsense"})).unknown_states == ["Nonsense"]
    assert Listed("done", done.id, "CompleteAbort") in world.coordinator.list(Filters())


def test_lists_wait_for_the_load(world: World) -> None:
    world.shard.state = "loading"
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        world.coordinator.list(Filters())
    assert world.init("tx") == Errors.COORDINATOR_LOAD_IN_PROGRESS
    world.shard.state = "unloaded"
    assert world.init("tx") == Errors.NOT_COORDINATOR


def test_a_shard_that_ends_during_a_list_is_left_out(world: World) -> None:
    world.producer("tx")
    world.shard.state = "unloaded"
    assert world.coordinator.list(Filters()) == []


# --- log lines for operators


def test_log_lines_name_the_fenced_producer_and_the_reason(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first = world.producer("tx")
    world.add("tx", first, P)
    assert world.init("tx") == Errors.CONCURRENT_TRANSACTIONS
    assert caplog.messages[-1] == "the transaction of 'tx' is aborted because a new producer uses its id"
    second = world.producer("tx")
    caplog.clear()
    assert world.verify("tx", first, P) == [Errors.PRODUCER_FENCED]
    assert world.commit("tx", first) == Errors.PRODUCER_FENCED
    fenced = f"PRODUCER_FENCED: the producer epoch is {second.epoch}, not {first.epoch}"
    refused = f"in the transaction of 'tx' is refused: {fenced}"
    assert caplog.messages == [f"a write {refused}", f"a request for {refused.removeprefix('in ')}"]
