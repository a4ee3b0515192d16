"""Transactional produce over the wire: the coordinator verifies that the partition is in the transaction.

The coordinator is a stand-in: the test chooses its answers, and when they come.
"""

import time

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DESCRIBE_PRODUCERS, FETCH, LIST_OFFSETS, PRODUCE, WRITE_TXN_MARKERS
from kafkapy.record.batch import build
from kafkapy.replica.verification import TransactionVerifier
from tests.harness.wire import Wire
from tests.server.requests import make_topic, start_broker

NOW = time.time_ns() // 1_000_000  # markers have the current time; with old records, the segment would roll
READ_COMMITTED = 1
MAX_TIMESTAMP = -3


class Coordinator:
    """A coordinator that answers `code` for every partition: at once or, while `held` is True, in `let_go`."""

    def __init__(self):
        self.code = Errors.NONE
        self.held = False
        self.asked = []
        self._waiting = []

    def verify(self, transactional_id, producer_id, epoch, partitions, done):
        self.asked.append((transactional_id, producer_id, epoch, list(partitions)))
        codes = dict.fromkeys(partitions, self.code)
        if self.held:
            self._waiting.append(lambda: done(codes))
        else:
            done(codes)

    def let_go(self):
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one()


@pytest.fixture(scope="module")
def transacting(tmp_path_factory):
    server = start_broker(tmp_path_factory.mktemp("transacting"), broker_id=0, num_partitions=2)
    yield server
    server.stop()


@pytest.fixture
def coordinator(transacting):
    services = transacting.services
    coordinator = Coordinator()
    verifier = TransactionVerifier(services.replicas, coordinator.verify, lambda: True)
    services.coordinators._parts["verifier"] = verifier
    yield coordinator
    del services.coordinators._parts["verifier"]


@pytest.fixture
def wire(transacting):
    connection = Wire(transacting.bootstrap_servers)
    yield connection
    connection.close()


@pytest.fixture
def topic(wire, request):
    return make_topic(wire, "t-" + "".join(c for c in request.node.name if c.isalnum() or c == "_"))


def batch(*values, sequence=0, producer_id=7, epoch=0, transactional=True):
    records = [(NOW, None, value, []) for value in values]
    return build(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def request(topic, sets, transactional_id="tx", acks=-1):
    """Return a produce request with these sets: {partition: batch}."""
    make = PRODUCE.Request
    parts = [make.TopicData.PartitionData(index=index, records=data) for index, data in sets.items()]
    data = [make.TopicData(name=topic, partition_data=parts)]
    return make(transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=data)


def codes_of(response):
    return {one.index: one.error_code for one in response.responses[0].partition_responses}


def produce(wire, topic, sets, version=11, **options):
    return codes_of(wire.call(PRODUCE, version, request(topic, sets, **options)))


def mark(wire, topic, *, index=0, producer_id=7, epoch=0, commit=True, coordinator_epoch=0):
    make = WRITE_TXN_MARKERS.Request
    marker = make.Markers(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[make.Markers.Topics(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
    )
    (answer,) = wire.call(WRITE_TXN_MARKERS, 1, make(markers=[marker])).markers
    return answer.topics[0].partitions[0].error_code


def latest(wire, topic, isolation, timestamp=-1):
    make = LIST_OFFSETS.Request
    part = make.Topics.Partitions(partition_index=0, timestamp=timestamp)
    asked = make(replica_id=-1, isolation_level=isolation, topics=[make.Topics(name=topic, partitions=[part])])
    return wire.call(LIST_OFFSETS, 9, asked).topics[0].partitions[0].offset


def test_the_largest_timestamp_is_that_of_a_record_that_the_consumer_may_read(wire, topic, coordinator):
    """The newest record is in an open transaction, so a read_committed consumer gets that of an older record."""
    plain = build([(NOW - 5, None, b"a", [])])
    assert produce(wire, topic, {0: plain}, transactional_id=None) == {0: Errors.NONE}
    assert produce(wire, topic, {0: batch(b"b")}) == {0: Errors.NONE}
    assert latest(wire, topic, READ_COMMITTED, MAX_TIMESTAMP) == 0
    assert latest(wire, topic, 0, MAX_TIMESTAMP) == 1


def test_the_first_set_in_a_partition_is_verified_and_later_ones_are_not(wire, topic, coordinator):
    assert produce(wire, topic, {0: batch(b"a")}) == {0: Errors.NONE}
    assert produce(wire, topic, {0: batch(b"b", sequence=1), 1: batch(b"c")}) == {0: Errors.NONE, 1: Errors.NONE}
    assert coordinator.asked == [("tx", 7, 0, [(topic, 0)]), ("tx", 7, 0, [(topic, 1)])]
    assert mark(wire, topic) == Errors.NONE
    assert produce(wire, topic, {0: batch(b"d", sequence=2)}) == {0: Errors.NONE}
    assert len(coordinator.asked) == 3


@pytest.mark.parametrize(
    ("verified", "version", "expected"),
    [
        (Errors.TRANSACTION_ABORTABLE, 11, Errors.TRANSACTION_ABORTABLE),
        (Errors.TRANSACTION_ABORTABLE, 10, Errors.INVALID_TXN_STATE),
        (Errors.PRODUCER_FENCED, 11, Errors.INVALID_PRODUCER_EPOCH),
        (Errors.INVALID_PRODUCER_ID_MAPPING, 11, Errors.INVALID_PRODUCER_ID_MAPPING),
        (Errors.COORDINATOR_LOAD_IN_PROGRESS, 11, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.COORDINATOR_NOT_AVAILABLE, 11, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.NOT_COORDINATOR, 9, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.CONCURRENT_TRANSACTIONS, 11, Errors.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_refusal_by_the_coordinator_becomes_the_error_that_producers_handle_correctly(
    wire, topic, coordinator, verified, version, expected
):
    coordinator.code = verified
    assert produce(wire, topic, {0: batch(b"a")}, version) == {0: expected}
    assert latest(wire, topic, READ_COMMITTED) == latest(wire, topic, 0) == 0


def test_requests_that_wait_for_the_coordinator_are_answered_in_order_and_appended_together(wire, topic, coordinator):
    coordinator.held = True
    sent = [wire.send(PRODUCE, 11, request(topic, {0: batch(b"%d" % n, sequence=n)})) for n in range(5)]
    while not coordinator.asked:
        pass
    assert latest_of_other(wire, topic) == 0
    answered = 0
    while answered < len(sent):
        coordinator.let_go()
        coordinator.held = False
        correlation, response = wire.receive(PRODUCE, 11)
        assert correlation == sent[answered]
        assert response.responses[0].partition_responses[0].base_offset == answered
        answered += 1
    assert latest(wire, topic, 0) == 5


def latest_of_other(wire, topic):
    other = socketed(wire)
    found = latest(other, topic, 0)
    other.close()
    return found


def socketed(wire):
    host, port = wire.socket.getpeername()
    return Wire(f"{host}:{port}")


def test_a_marker_that_overtakes_a_verification_makes_it_void(wire, topic, coordinator):
    coordinator.held = True
    wire.send(PRODUCE, 11, request(topic, {0: batch(b"a")}))
    while not coordinator.asked:
        pass
    other = socketed(wire)
    assert mark(other, topic, commit=False) == Errors.NONE
    coordinator.let_go()
    _, response = wire.receive(PRODUCE, 11)
    assert codes_of(response) == {0: Errors.INVALID_TXN_STATE}
    assert latest(other, topic, READ_COMMITTED) == 1  # the offset after the marker: no transaction is open
    other.close()


def test_transactional_records_without_an_id_are_refused_with_all_of_their_request(wire, topic, coordinator):
    response = produce(wire, topic, {0: batch(b"a"), 1: batch(b"b", transactional=False)}, transactional_id=None)
    assert response == dict.fromkeys((0, 1), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert not coordinator.asked


def test_one_request_is_of_one_producer(wire, topic, coordinator):
    response = produce(wire, topic, {0: batch(b"a"), 1: batch(b"b", producer_id=8)})
    assert response == dict.fromkeys((0, 1), Errors.INVALID_PRODUCER_ID_MAPPING)
    assert not coordinator.asked


def test_records_outside_of_a_transaction_need_no_coordinator_even_with_a_transactional_id(wire, topic, coordinator):
    assert produce(wire, topic, {0: batch(b"a", transactional=False)}) == {0: Errors.NONE}
    assert not coordinator.asked


def test_verification_can_be_turned_off(transacting, wire, topic, coordinator):
    replicas = transacting.services.replicas
    replicas.verify_transactions(False)
    verifier = TransactionVerifier(replicas, coordinator.verify, lambda: False)
    transacting.services.coordinators._parts["verifier"] = verifier
    try:
        assert produce(wire, topic, {0: batch(b"a")}) == {0: Errors.NONE}
    finally:
        replicas.verify_transactions(True)
    assert not coordinator.asked


def test_many_markers_in_one_request_are_answered_by_producer(wire, topic, coordinator):
    make = WRITE_TXN_MARKERS.Request
    markers = [
        make.Markers(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=False,
            topics=[make.Markers.Topics(name=topic, partition_indexes=indexes)],
            coordinator_epoch=0,
        )
        for producer_id, indexes in [(1, [0, 1, 0]), (2, [1, 5]), (1, [3])] + [(n, [0, 1]) for n in range(100, 250)]
    ]
    answer = wire.call(WRITE_TXN_MARKERS, 1, make(markers=markers))
    codes = {
        one.producer_id: {part.partition_index: part.error_code for part in one.topics[0].partitions}
        for one in answer.markers
    }
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert len(codes) == 152
    assert codes[1] == {0: Errors.NONE, 1: Errors.NONE, 3: unknown}
    assert codes[2] == {1: Errors.NONE, 5: unknown}
    assert latest(wire, topic, READ_COMMITTED) == 151
    assert wire.call(WRITE_TXN_MARKERS, 0, make(markers=[])).markers == []


# --- readers


def fetch_request(topic, offset, *, max_wait_ms=0, min_bytes=1, isolation=READ_COMMITTED):
    make = FETCH.Request
    part = make.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return make(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[make.Topics(topic=topic, partitions=[part])],
    )


def fetched(response):
    (one,) = response.responses[0].partitions
    return one


def test_a_waiting_reader_of_committed_records_is_woken_by_the_marker(wire, topic, coordinator):
    other = socketed(wire)
    other.send(FETCH, 12, fetch_request(topic, 0, max_wait_ms=60_000))
    assert produce(wire, topic, {0: batch(b"a")}) == {0: Errors.NONE}
    uncommitted = fetched(wire.call(FETCH, 12, fetch_request(topic, 0, isolation=0)))
    assert (uncommitted.high_watermark, uncommitted.last_stable_offset) == (1, 0)
    assert uncommitted.aborted_transactions is None
    assert fetched(wire.call(FETCH, 12, fetch_request(topic, 0))).records in (b"", None)
    assert (latest(wire, topic, READ_COMMITTED), latest(wire, topic, 0)) == (0, 1)
    assert mark(wire, topic, commit=False) == Errors.NONE
    _, response = other.receive(FETCH, 12)
    woken = fetched(response)
    assert woken.last_stable_offset == 2
    assert [(one.producer_id, one.first_offset) for one in woken.aborted_transactions] == [(7, 0)]
    assert len(woken.records) == len(batch(b"a")) + 78
    other.close()


def test_a_commit_leaves_nothing_aborted(wire, topic, coordinator):
    assert produce(wire, topic, {0: batch(b"a")}) == {0: Errors.NONE}
    assert mark(wire, topic) == Errors.NONE
    read = fetched(wire.call(FETCH, 12, fetch_request(topic, 0)))
    assert (read.aborted_transactions, read.last_stable_offset) == ([], 2)
    assert latest(wire, topic, READ_COMMITTED) == 2


def test_a_hanging_transaction_can_be_found_and_aborted_by_an_administrator(wire, topic, coordinator):
    """As in Kafka's TransactionsCommand, DescribeProducers finds the transaction and WriteTxnMarkers aborts it."""
    assert produce(wire, topic, {0: batch(b"before", transactional=False, producer_id=1)}) == {0: Errors.NONE}
    assert produce(wire, topic, {0: batch(b"a", b"b", epoch=5)}) == {0: Errors.NONE}
    found = producers_of(wire, topic)
    assert found[1].current_txn_start_offset == -1
    hanging = found[7]
    assert (hanging.producer_epoch, hanging.last_sequence, hanging.coordinator_epoch) == (5, 1, -1)
    assert (hanging.current_txn_start_offset, hanging.last_timestamp) == (1, NOW)
    assert latest(wire, topic, READ_COMMITTED) == 1
    assert mark(wire, topic, epoch=hanging.producer_epoch, commit=False) == Errors.NONE
    assert latest(wire, topic, READ_COMMITTED) == 4
    ended = producers_of(wire, topic)[7]
    assert (ended.current_txn_start_offset, ended.coordinator_epoch) == (-1, 0)


def producers_of(wire, topic):
    make = DESCRIBE_PRODUCERS.Request
    asked = make(topics=[make.Topics(name=topic, partition_indexes=[0])])
    (answer,) = wire.call(DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions
    return {one.producer_id: one for one in answer.active_producers}
