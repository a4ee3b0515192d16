"""Batches are sent to the leaders of partitions, retried and given up."""

import threading
from collections import Counter

import pytest

from kafkapy.client.original.encoders import DefaultEncoder
from kafkapy.client.original.partitioners import DefaultPartitioner
from kafkapy.client.original.producing.event_handler import DefaultEventHandler
from kafkapy.client.original.producing.producer_batch import BATCH_BYTES, Item, split_into_batches
from kafkapy.client.original.producing.producer_config import read_config
from kafkapy.client.original.producing.producer_messages import FailedToSendMessage, KeyedMessage
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.record.batch import records_of
from kafkapy.record.legacy import iter_entries
from tests.harness.batches import iter_batches

TOO_LARGE = Errors.MESSAGE_TOO_LARGE
PRODUCE = apis.PRODUCE


class Store:
    """The records that a fake broker has stored, by (topic, partition). `errors` has the first responses, one for each
    request: an error code for its partitions, or HANG_UP or SILENCE instead of a response. In a tuple it follows
    whether the records are stored."""

    def __init__(self, broker, errors=()):
        self.errors = list(errors)
        self.stored = {}
        self.numbers = []  # (partition, producer id, sequence, count) of each batch, also of refused ones
        self.formats = set()
        broker.answers[PRODUCE.key] = self.answer

    def answer(self, request):
        error = self.errors.pop(0) if self.errors else Errors.NONE
        stored, error = error if isinstance(error, tuple) else (error == Errors.NONE, error)
        shape = PRODUCE.Response.Responses
        response = PRODUCE.Response(responses=[])
        for topic in request.topic_data:
            parts = []
            for part in topic.partition_data:
                self._keep(topic.name, part, stored)
                parts.append(
                    shape.PartitionResponses(index=part.index, error_code=error if isinstance(error, int) else 0)
                )
            response.responses.append(shape(name=topic.name, partition_responses=parts))
        return response if isinstance(error, int) else error

    def _keep(self, topic, part, stored):
        data = bytes(part.records)
        for header in iter_entries(data):
            self.formats.add(header.magic)
            if header.magic == 2:
                self.numbers.append((part.index, header.producer_id, header.base_sequence, header.count))
            if stored:
                kept = self.stored.setdefault((topic, part.index), [])
                kept += [(record.key, record.value) for record in records_of(data, header)]

    @property
    def count(self):
        return sum(map(len, self.stored.values()))


@pytest.fixture
def open_handler(fake_broker):
    opened = []

    def opener(encoder=None, **properties):
        named = {name.replace("_", "."): value for name, value in properties.items()}
        config = read_config(
            {"metadata.broker.list": fake_broker.address, "retry.backoff.ms": 0, "request.timeout.ms": 500, **named}
        )
        opened.append(
            DefaultEventHandler(
                config, encoder or DefaultEncoder(), DefaultEncoder(), DefaultPartitioner(), stats := Counter()
            )
        )
        opened[-1].stats = stats
        return opened[-1]

    yield opener
    for handler in opened:
        handler.close()


def keyed(count, topic="t"):
    return [KeyedMessage(topic, b"v%d" % number, b"k%d" % number) for number in range(count)]


def test_messages_go_to_the_partitions_of_their_keys_in_one_request_for_each_broker(
    fake_broker, second_broker, open_handler
):
    fake_broker.topics["t"] = [1, 2, 1]
    first, second = Store(fake_broker), Store(second_broker)
    open_handler().handle(keyed(50))
    assert len(fake_broker.requests("Produce")) == len(second_broker.requests("Produce")) == 1
    assert first.count + second.count == 50
    for (_, partition), records in {**first.stored, **second.stored}.items():
        numbers = [int(key[1:]) for key, _ in records]
        assert numbers == sorted(numbers)
        assert {DefaultPartitioner().partition(key, 3) for key, _ in records} == {partition}


def test_a_key_for_the_partition_alone_is_not_sent(fake_broker, open_handler):
    fake_broker.topics["t"] = [1] * 5
    store = Store(fake_broker)
    open_handler().handle([KeyedMessage("t", b"v", None, "kafka"), KeyedMessage("t", None, b"k", "kafka")])
    assert store.stored == {("t", DefaultPartitioner().partition("kafka", 5)): [(None, b"v"), (b"k", None)]}


def test_messages_without_a_key_go_to_a_partition_that_has_a_leader(fake_broker, open_handler):
    fake_broker.topics["t"] = [-1, 1, -1]
    store = Store(fake_broker)
    open_handler().handle([KeyedMessage("t", b"v")] * 3)
    assert store.stored == {("t", 1): [(None, b"v")] * 3}


def test_a_retriable_error_is_retried_and_counted(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker, [Errors.NOT_LEADER_OR_FOLLOWER, Errors.LEADER_NOT_AVAILABLE])
    handler = open_handler()
    handler.handle(keyed(3))
    assert store.count == 3
    assert handler.stats == {"resends": 2}


def test_after_all_retries_the_messages_are_returned_with_the_reason(fake_broker, open_handler):
    fake_broker.topics.update(t=[1], good=[1])
    Store(fake_broker, [Errors.NOT_LEADER_OR_FOLLOWER] * 3)
    with pytest.raises(FailedToSendMessage, match="3 messages for t not stored") as failed:
        open_handler(message_send_max_retries=2).handle(keyed(3))
    assert failed.value.messages == keyed(3)
    assert failed.value.reason.code == Errors.NOT_LEADER_OR_FOLLOWER
    assert len(fake_broker.requests("Produce")) == 3


def test_a_topic_that_cannot_be_written_does_not_delay_others(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker)
    with pytest.raises(FailedToSendMessage, match="2 messages for missing not stored") as failed:
        open_handler(message_send_max_retries=1).handle([*keyed(2, "missing"), *keyed(3)])
    assert failed.value.messages == keyed(2, "missing")
    assert store.count == 3


def test_errors_that_are_not_retriable_are_not_retried(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    Store(fake_broker, [Errors.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(FailedToSendMessage):
        open_handler().handle(keyed(1))
    assert len(fake_broker.requests("Produce")) == 1


def test_a_too_large_batch_is_halved_and_a_too_large_message_is_returned(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker, [TOO_LARGE, TOO_LARGE, TOO_LARGE])
    sent = keyed(5)
    with pytest.raises(FailedToSendMessage, match="1 message for t") as failed:
        open_handler().handle(sent)
    assert failed.value.messages == sent[:1]
    assert store.stored["t", 0] == [(message.key, message.message) for message in sent[1:]]


def test_a_broken_connection_is_opened_again(fake_broker, open_handler, hang_up):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker, [hang_up])
    open_handler().handle(keyed(2))
    assert store.count == 2


def test_with_idempotence_a_retried_batch_keeps_its_sequence_numbers(fake_broker, open_handler, hang_up):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker, [Errors.NONE, (True, hang_up), Errors.DUPLICATE_SEQUENCE_NUMBER])
    handler = open_handler(enable_idempotence="true")
    for _ in range(3):
        handler.handle(keyed(4))
    assert store.numbers == [(0, 7, 0, 4), (0, 7, 4, 4), (0, 7, 4, 4), (0, 7, 8, 4)]


def test_sequence_numbers_restart_with_a_new_producer_id_after_a_lost_batch(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    ids = iter((7, 8))
    fake_broker.answers[apis.INIT_PRODUCER_ID.key] = lambda _: apis.INIT_PRODUCER_ID.Response(
        producer_id=next(ids), producer_epoch=0
    )
    store = Store(fake_broker, [Errors.NONE, Errors.INVALID_RECORD])
    handler = open_handler(enable_idempotence="true")
    handler.handle(keyed(4))
    with pytest.raises(FailedToSendMessage):
        handler.handle(keyed(2))
    handler.handle(keyed(3))
    assert store.numbers == [(0, 7, 0, 4), (0, 7, 4, 2), (0, 8, 0, 3)]


def test_halves_of_a_batch_keep_its_sequence_numbers(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker, [TOO_LARGE])
    handler = open_handler(enable_idempotence="true")
    handler.handle(keyed(5))
    handler.handle(keyed(1))
    assert store.numbers == [(0, 7, 0, 5), (0, 7, 0, 2), (0, 7, 2, 3), (0, 7, 5, 1)]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 2)])
def test_old_brokers_get_their_message_format(fake_broker, open_handler, version, magic):
    fake_broker.topics["t"] = [1]
    fake_broker.versions[PRODUCE.key] = (0, version)
    store = Store(fake_broker)
    open_handler(compression_codec="gzip").handle(keyed(3))
    assert store.formats == {magic}
    assert store.stored["t", 0] == [(message.key, message.message) for message in keyed(3)]


def test_only_the_topics_that_are_named_are_compressed(fake_broker, open_handler):
    fake_broker.topics.update(small=[1], big=[1])
    Store(fake_broker)
    open_handler(compression_codec="2", compressed_topics="big, other").handle([*keyed(9, "small"), *keyed(9, "big")])
    (request,) = fake_broker.requests("Produce")
    codecs = {
        topic.name: header.codec
        for topic in request.topic_data
        for part in topic.partition_data
        for header in iter_batches(bytes(part.records))
    }
    assert codecs == {"small": 0, "big": 2}


def test_without_acknowledgement_nothing_is_waited_for(fake_broker, open_handler, silence):
    fake_broker.topics["t"] = [1]
    arrived = threading.Event()
    fake_broker.answers[PRODUCE.key] = lambda request: arrived.set() or silence
    open_handler(request_required_acks="0").handle(keyed(3))
    assert arrived.wait(10)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_message_that_cannot_be_encoded_is_lost_alone_or_stops_a_sync_producer(fake_broker, open_handler, kind):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker)
    handler = open_handler(producer_type=kind)
    broken = KeyedMessage("t", "a string", b"k")
    with pytest.raises(TypeError if kind == "sync" else FailedToSendMessage, match="default encoder") as failed:
        handler.handle([*keyed(2), broken])
    assert handler.stats["serialization_errors"] == 1
    if kind == "async":
        assert failed.value.messages == [broken]
    assert store.count == (2 if kind == "async" else 0)


class Strings:
    """An encoder that returns strings as they are, which no batch can hold."""

    def to_bytes(self, data):
        return data


def test_after_an_unexpected_error_no_response_is_taken_for_that_to_another_request(
    fake_broker, second_broker, open_handler
):
    fake_broker.topics.update(sent=[1], broken=[2], next=[1])
    store = Store(fake_broker)
    handler = open_handler(Strings(), message_send_max_retries=0)
    with pytest.raises(TypeError):
        handler.handle([*keyed(1, "sent"), KeyedMessage("broken", "a string", b"k")])
    handler.handle(keyed(1, "next"))  # the response to the first request lacks this topic
    assert store.stored["next", 0] == [(b"k0", b"v0")]


def test_a_key_without_a_partition_is_lost_alone(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    store = Store(fake_broker)
    with pytest.raises(FailedToSendMessage, match="cannot hash") as failed:
        open_handler().handle([*keyed(2), KeyedMessage("t", b"v", None, 1.5)])
    assert failed.value.messages == [KeyedMessage("t", b"v", None, 1.5)]
    assert store.count == 2


def test_metadata_is_refreshed_after_the_refresh_interval(fake_broker, open_handler):
    fake_broker.topics["t"] = [1]
    Store(fake_broker)
    handler = open_handler(topic_metadata_refresh_interval_ms=0)
    for _ in range(3):
        handler.handle(keyed(1))
    assert len(fake_broker.requests("Metadata")) >= 3


def test_an_unreachable_broker_is_an_error_after_the_retries(open_handler, fake_broker):
    fake_broker.close()
    with pytest.raises(FailedToSendMessage, match="Is a broker listening there"):
        open_handler().handle(keyed(1))


def test_batches_are_split_to_a_size_that_brokers_accept_in_order():
    items = [Item(KeyedMessage("t", number), None, bytes(BATCH_BYTES // 3)) for number in range(7)]
    items.insert(3, Item(KeyedMessage("t", "large"), b"k", bytes(2 * BATCH_BYTES)))
    batches = list(split_into_batches(("t", 0), items))
    assert [item for batch in batches for item in batch.items] == items
    assert [len(batch.items) for batch in batches] == [2, 1, 1, 2, 2]
    assert list(split_into_batches(("t", 0), [])) == []
