"""Batches reach a broker once and in order, also when requests fail or are lost."""

import threading
from collections import defaultdict, deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.client.errors import ProduceFailed
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import BatchBuilder, records_of
from kafkapy.record.encoded import EncodedBatch
from tests.harness.batches import iter_batches
from tests.harness.examples import examples


class Log:
    """A partition that checks sequence numbers as Kafka does: no gaps, and duplicates of the last five batches."""

    def __init__(self):
        self.values = []
        self.next_sequence = 0
        self.known = deque(maxlen=5)  # (base sequence, count)

    def append(self, data):
        (header,) = iter_batches(data)
        if (header.base_sequence, header.count) in self.known:
            return Errors.NONE
        if header.base_sequence not in (-1, self.next_sequence):
            return Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.values += [record.value for record in records_of(data, header)]
        if header.base_sequence >= 0:
            self.next_sequence += header.count
            self.known.append((header.base_sequence, header.count))
        return Errors.NONE


class Store:
    """The Produce responses of a broker. Each of the first requests has one of the `accidents`. Later ones succeed."""

    def __init__(self, broker, accidents=(), hang_up=None, largest=1 << 30):
        self.logs = defaultdict(Log)
        self.requests = []  # the partitions of each request
        self.accidents = list(accidents)
        self.largest = largest
        self._hang_up = hang_up
        broker.answers[apis.PRODUCE.key] = self.answer

    def answer(self, request):
        accident = self.accidents.pop(0) if self.accidents else "none"
        batches = [(p.index, bytes(p.records)) for topic in request.topic_data for p in topic.partition_data]
        self.requests.append([index for index, _ in batches])
        if accident == "lost":
            return self._hang_up
        codes = {}
        for index, data in batches:
            if len(data) > self.largest:
                codes[index] = Errors.MESSAGE_TOO_LARGE
            elif accident == "moved":
                codes[index] = Errors.NOT_LEADER_OR_FOLLOWER
            else:
                codes[index] = self.logs[index].append(data)
        if accident == "restarted":  # after a clean stop Kafka knows only the last batch of a producer
            for log in self.logs.values():
                while len(log.known) > 1:
                    log.known.popleft()
        if accident in ("unanswered", "restarted"):
            return self._hang_up
        shape = apis.PRODUCE.Response.Responses
        answers = [
            shape.PartitionResponses(index=index, error_code=code, base_offset=0, error_message=None)
            for index, code in codes.items()
        ]
        return apis.PRODUCE.Response(responses=[shape(name="t", partition_responses=answers)])


def batch_of(*values, partition=0, codec=0):
    """Return a batch like those of RowEncoder."""
    builder = BatchBuilder(codec)
    for value in values:
        builder.append(1000, b"k", value, [("h", value)])
    return EncodedBatch("t", partition, bytearray(builder.build()), len(values), 0)


def test_five_requests_are_in_flight_and_further_batches_wait(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    may_answer = threading.Event()
    fake_broker.answers[apis.PRODUCE.key] = lambda request: may_answer.wait(30) and store.answer(request)
    with RecordProducer(fake_broker.address) as producer:
        producer.send_batch(batch_of(b"first"))
        may_answer.set()
        producer.flush()
        may_answer.clear()
        for number in range(5):
            producer.send_batch(batch_of(b"%d" % number))
            assert producer._outbox.waiting_bytes == 0
        producer.send_batch(batch_of(b"5"))
        assert producer._outbox.waiting_bytes > 0
        may_answer.set()
    assert store.logs[0].values == [b"first", *(b"%d" % number for number in range(6))]


def test_a_retry_does_not_wait_for_the_response_of_another_broker(fake_broker, second_broker, monkeypatch):
    monkeypatch.setattr("kafkapy.client.producing.outbox.BACKOFF_S", 0.1)
    fake_broker.topics["t"] = [1, 2]
    slow, other = Store(fake_broker), Store(second_broker, ["moved"])
    is_stored = threading.Event()
    waited = []

    def answer_at_last(request):
        waited.append(is_stored.wait(20))
        return slow.answer(request)

    def answer(request):
        response = other.answer(request)
        if other.logs[1].values:
            is_stored.set()
        return response

    fake_broker.answers[apis.PRODUCE.key] = answer_at_last
    second_broker.answers[apis.PRODUCE.key] = answer
    with RecordProducer(fake_broker.address) as producer:
        producer.send_batch(batch_of(b"0"))
        producer.send_batch(batch_of(b"1", partition=1))
        producer.flush()
    assert waited == [True]
    assert (slow.logs[0].values, other.logs[1].values) == ([b"0"], [b"1"])


def test_only_one_request_is_in_flight_until_the_broker_has_stored_the_first_batch(fake_broker):
    """Otherwise the broker could take the second batch after refusing the first, and both would count as stored."""
    fake_broker.topics = {"t": [1]}
    stored = []
    expected = [-1]  # any

    def answer(request):
        ((data,),) = ([one.records for one in topic.partition_data] for topic in request.topic_data)
        (header,) = iter_batches(data)
        values = [record.value for record in records_of(data, header)]
        code = Errors.NONE
        if expected[0] not in (-1, header.base_sequence):
            code = Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif b"large" in values:
            code = Errors.MESSAGE_TOO_LARGE
        else:
            stored.extend(values)
            expected[0] = header.base_sequence + header.count
        shape = apis.PRODUCE.Response.Responses
        answers = [shape.PartitionResponses(index=0, error_code=code, error_message=None)]
        return apis.PRODUCE.Response(responses=[shape(name="t", partition_responses=answers)])

    fake_broker.answers[apis.PRODUCE.key] = answer
    producer = RecordProducer(fake_broker.address)
    producer.send_batch(batch_of(b"0", b"large"))
    producer.send_batch(batch_of(b"1"))
    with pytest.raises(ProduceFailed, match="1 record for t-0 not stored"):
        producer.flush()
    producer.close()
    assert stored == [b"0"]


def test_without_sequence_numbers_a_partition_has_one_batch_in_flight(fake_broker):
    fake_broker.topics = {"t": [1, 1]}
    store = Store(fake_broker)
    may_answer = threading.Event()
    fake_broker.answers[apis.PRODUCE.key] = lambda request: may_answer.wait(30) and store.answer(request)
    with RecordProducer(fake_broker.address, acks=1) as producer:
        producer.send_batch(batch_of(b"0", partition=0))
        producer.send_batch(batch_of(b"1", partition=1))
        assert producer._outbox.waiting_bytes == 0
        producer.send_batch(batch_of(b"2", partition=0))
        assert producer._outbox.waiting_bytes > 0
        may_answer.set()
    assert [store.logs[index].values for index in (0, 1)] == [[b"0", b"2"], [b"1"]]


def test_the_bytes_of_waiting_batches_are_bounded(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address, request_bytes=1000) as producer:
        for number in range(100):
            producer.send_batch(batch_of(b"%0500d" % number))
            assert producer._outbox.waiting_bytes <= 4000
    assert len(store.logs[0].values) == 100


ACCIDENTS = st.lists(st.sampled_from(["none", "none", "moved", "lost", "unanswered", "restarted"]), max_size=12)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), min_size=1, max_size=20), ACCIDENTS)
def test_no_batch_is_lost_duplicated_or_reordered(fake_broker, hang_up, batches, accidents):
    fake_broker.topics = {"t": [1, 1]}
    store = Store(fake_broker, accidents, hang_up)
    given = {0: [], 1: []}
    with RecordProducer(fake_broker.address) as producer:
        for number, (index, count) in enumerate(batches):
            values = [b"%d.%d" % (number, record) for record in range(count)]
            given[index] += values
            producer.send_batch(batch_of(*values, partition=index))
        producer.flush()
        assert producer.acknowledged == sum(count for _, count in batches)
    assert {index: store.logs[index].values for index in given} == given


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 150), min_size=1, max_size=8), min_size=1, max_size=6), ACCIDENTS)
def test_batches_that_are_too_large_are_halved(fake_broker, hang_up, batches, accidents):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker, accidents, hang_up, largest=400)
    given = []
    with RecordProducer(fake_broker.address) as producer:
        deliveries = []
        for sizes in batches:
            values = [b"x" * size for size in sizes]
            given += values
            deliveries.append(producer.send_batch(batch_of(*values)))
        producer.flush()
        assert producer.acknowledged == len(given)
        assert all(delivery.done and delivery.error is None for delivery in deliveries)
    assert store.logs[0].values == given


def test_a_record_that_is_too_large_is_named_with_its_topic_and_size(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker, largest=400)
    with RecordProducer(fake_broker.address) as producer:
        producer.send_batch(batch_of(b"1", b"x" * 1000, b"3"))
        told = (
            r"1 record for t-0 not stored: MESSAGE_TOO_LARGE: .* has 20\d\d bytes, more than .* topic 't'.*max.message"
        )
        with pytest.raises(ProduceFailed, match=told):
            producer.flush()
    assert store.logs[0].values in ([], [b"1"])


def test_the_error_for_a_request_over_socket_request_max_bytes_names_the_setting(fake_broker, hang_up, monkeypatch):
    monkeypatch.setattr("kafkapy.client.producing.outbox.LONGEST_REQUEST", 1000)
    fake_broker.topics = {"t": [1]}
    Store(fake_broker, ["lost"] * 10, hang_up)
    with RecordProducer(fake_broker.address) as producer:
        producer.send_batch(batch_of(b"x" * 1000))
        with pytest.raises(
            ProduceFailed, match=r"record has 20\d\d bytes, more .* topic 't': .* socket.request.max.bytes"
        ):
            producer.flush()


def test_after_a_refused_batch_no_later_batch_is_stored(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    codes = [Errors.NONE, Errors.INVALID_RECORD]

    def answer(request):
        shape = apis.PRODUCE.Response.Responses
        code = codes.pop(0) if codes else None
        if not code:
            return store.answer(request)
        partition = shape.PartitionResponses(index=0, error_code=code, error_message=None)
        return apis.PRODUCE.Response(responses=[shape(name="t", partition_responses=[partition])])

    fake_broker.answers[apis.PRODUCE.key] = answer
    producer = RecordProducer(fake_broker.address)

    def send():
        for number in range(20):
            producer.send_batch(batch_of(b"%d" % number))
        producer.flush()

    with pytest.raises(ProduceFailed, match="INVALID_RECORD"):
        send()
    with pytest.raises(ProduceFailed, match="INVALID_RECORD"):
        producer.flush()
    assert store.logs[0].values == [b"0"]
    producer.close()


def test_an_unexplained_out_of_order_sequence_is_a_failure(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    store.logs[0].next_sequence = 5
    with RecordProducer(fake_broker.address) as producer:
        producer.send_batch(batch_of(b"1"))
        with pytest.raises(ProduceFailed, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            producer.flush()


def test_a_request_whose_response_another_call_dropped_is_sent_again(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    fake_broker.answers[apis.LIST_OFFSETS.key] = lambda request: apis.LIST_OFFSETS.Response()
    with RecordProducer(fake_broker.address) as producer:
        producer.send_batch(batch_of(b"1"))
        producer.cluster.connection(1).call(apis.LIST_OFFSETS, apis.LIST_OFFSETS.Request(replica_id=-1, topics=[]))
        producer.flush()
        producer.send_batch(batch_of(b"2"))
        producer.flush()
        assert producer.acknowledged == 2
    assert store.logs[0].values == [b"1", b"2"]
    assert len(store.requests) == 3
