"""The consumer without a group: fetches, doubled buffers, partial messages, offset ranges."""

import itertools

import pytest

from kafkapy.client import NewTopic, RecordProducer
from kafkapy.client.administration.admin import Admin
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.client.original.simple.messages import FetchRequest, MessageSet, MessageTooLarge
from kafkapy.client.original.simple.simple_consumer import EARLIEST, LATEST, SimpleConsumer
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.record.batch import build
from kafkapy.record.legacy import build_set

REQUEST = FetchRequest("t", 0, 0, 1000)
RECORDS = [(1000 + n, b"k%d" % n, b"v%d" % n) for n in range(5)]


class Log:
    """A partition in memory. Its responses are cut off at the fetch size, as by brokers before Kafka 0.10.1."""

    def __init__(self, broker, data, *, start=0, end=5):
        self.data, self.start, self.end = data, start, end
        self.sizes = []
        broker.answers[apis.FETCH.key] = self.fetch
        broker.answers[apis.LIST_OFFSETS.key] = self.offsets

    def fetch(self, request):
        shape = apis.FETCH.Response.Responses
        return apis.FETCH.Response(
            responses=[
                shape(topic=topic.topic, partitions=[self._part(shape.Partitions, part) for part in topic.partitions])
                for topic in request.topics
            ]
        )

    def _part(self, shape, part):
        self.sizes.append(part.partition_max_bytes)
        error = Errors.NONE if self.start <= part.fetch_offset <= self.end else Errors.OFFSET_OUT_OF_RANGE
        if part.partition > 0:
            error = Errors.UNKNOWN_TOPIC_OR_PARTITION
        data = b"" if error or part.fetch_offset == self.end else self.data[: part.partition_max_bytes]
        high = -1 if error else self.end
        return shape(partition_index=part.partition, error_code=error, high_watermark=high, records=data)

    def offsets(self, request):
        shape = apis.LIST_OFFSETS.Response.Topics
        found = [self.end, self.start]
        (topic,) = request.topics
        (asked,) = topic.partitions
        found = {LATEST: found, EARLIEST: found[1:]}.get(asked.timestamp, [])[: asked.max_num_offsets]
        part = shape.Partitions(partition_index=asked.partition_index, error_code=0, old_style_offsets=found)
        return apis.LIST_OFFSETS.Response(topics=[shape(name=topic.name, partitions=[part])])


@pytest.fixture
def consume(fake_broker):
    opened = []

    def opener(**more):
        opened.append(SimpleConsumer("127.0.0.1", fake_broker.port, timeout_s=5, **more))
        return opened[-1]

    yield opener
    for consumer in opened:
        consumer.close()


def values(messages):
    return [message.value for _, message in messages]


SETS = {
    "batch": build([(*record, ()) for record in RECORDS]),
    "gzip batch": build([(*record, ()) for record in RECORDS], codec=1),
    **{f"format {magic}": build_set(RECORDS, magic) for magic in (0, 1)},
    **{f"format {magic}, codec {codec}": build_set(RECORDS, magic, codec) for magic in (0, 1) for codec in (1, 2, 3)},
}


@pytest.mark.parametrize("name", SETS)
def test_messages_of_every_format_come_one_by_one_from_the_offset_on(name):
    found = MessageSet(REQUEST._replace(offset=2), SETS[name], 5)
    assert [(offset, message.key, message.value) for offset, message in found] == [
        (n, b"k%d" % n, b"v%d" % n) for n in (2, 3, 4)
    ]
    times = [-1] * 3 if "format 0" in name else [1002, 1003, 1004]
    assert [message.timestamp for _, message in found] == times
    assert (found.next_offset, found.is_partial, found.size_in_bytes) == (5, False, found.valid_bytes)


@pytest.mark.parametrize("name", SETS)
def test_a_message_cut_off_at_the_end_is_partial_and_the_ones_before_it_are_there(name):
    data = SETS[name]
    for cut in range(len(data)):
        found = MessageSet(REQUEST, data[:cut], 5)
        seen = list(found)
        assert found.is_partial == (found.valid_bytes < cut)
        assert found.next_offset == len(seen)
        assert seen == list(MessageSet(REQUEST, data, 5))[: len(seen)]


def test_a_message_is_decoded_only_when_it_is_requested():
    damaged = bytearray(build_set(RECORDS, 1))
    damaged[-1] ^= 1
    messages = iter(MessageSet(REQUEST, bytes(damaged), 5))
    assert [offset for offset, _ in itertools.islice(messages, 4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"checksum|CRC|crc"):
        next(messages)


def test_bytes_that_are_no_message_are_refused_and_not_taken_for_a_partial_one():
    found = MessageSet(REQUEST, bytes(40), 5)
    assert not found.is_partial
    with pytest.raises(ValueError):  # noqa: PT011
        list(found)


def test_a_buffer_that_is_too_small_is_doubled_until_the_message_fits(fake_broker, consume):
    log = Log(fake_broker, SETS["format 0"])
    found = consume().fetch("t", 0, 0, 5)
    assert log.sizes == [5, 10, 20, 40]
    assert values(found) == [b"v0"]
    assert found.is_partial


def test_a_message_above_the_maximum_is_refused_by_name(fake_broker, consume):
    log = Log(fake_broker, SETS["batch"])
    with pytest.raises(MessageTooLarge, match=f"t-0 at offset 0 has {len(SETS['batch'])} bytes.*max_buffer, 100"):
        consume(max_buffer=100).fetch("t", 0, 0, 30)
    assert log.sizes[0] == 30
    assert max(log.sizes) <= 100
    with pytest.raises(MessageTooLarge, match="has more bytes"):
        consume(max_buffer=10).fetch("t", 0, 0, 5)


def test_an_offset_out_of_range_comes_with_the_range(fake_broker, consume):
    Log(fake_broker, SETS["batch"], start=0)
    with pytest.raises(OffsetOutOfRange) as refused:
        consume().fetch("t", 0, 99, 1000)
    assert (refused.value.offset, refused.value.earliest, refused.value.latest) == (99, 0, 5)


@pytest.mark.parametrize(
    ("property_name", "word", "there"),
    [("auto.offset.reset", "smallest", 0), ("autooffset.reset", "largest", 5), ("autooffset.reset", "smallest", 0)],
)
def test_after_out_of_range_it_reads_from_where_the_properties_say(fake_broker, consume, property_name, word, there):
    Log(fake_broker, SETS["batch"])
    found = consume(properties={property_name: word}).fetch("t", 0, 99, 1000)
    assert found.offset == there
    assert len(values(found)) == 5 - there


def test_an_invalid_autooffset_reset_is_named(consume):
    with pytest.raises(ValueError, match=r"autooffset\.reset is 'middle'"):
        consume(properties={"autooffset.reset": "middle"})


def test_several_partitions_come_in_one_request_each_with_its_own_error(fake_broker, consume):
    Log(fake_broker, SETS["batch"])
    consumer = consume()
    wanted = [FetchRequest("t", 0, 0, 1000), FetchRequest("u", 1, 0, 1000), FetchRequest("u", 0, 99, 1000)]
    good, unknown, out = consumer.multifetch(wanted)
    assert len(fake_broker.requests("Fetch")) == 1
    assert values(good) == [b"v%d" % n for n in range(5)]
    with pytest.raises(KafkaError) as refused:
        list(unknown)
    assert refused.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert isinstance(out.error, OffsetOutOfRange)
    assert consumer.multifetch([]) == []
    with pytest.raises(ValueError, match="only once"):
        consumer.multifetch([wanted[0], wanted[0]])


def test_a_broken_connection_is_reopened_once(fake_broker, consume, hang_up):
    log = Log(fake_broker, SETS["batch"])
    consumer = consume()
    consumer.fetch("t", 0, 0, 1000)
    broken = [hang_up]
    fake_broker.answers[apis.FETCH.key] = lambda request: broken.pop() if broken else log.fetch(request)
    assert len(values(consumer.fetch("t", 0, 0, 1000))) == 5
    fake_broker.answers[apis.FETCH.key] = lambda _: hang_up
    with pytest.raises(ConnectionFailed):
        consumer.fetch("t", 0, 0, 1000)


def test_a_brokers_log_is_read_to_its_end(kafkapy_broker, kafkapy_topic):
    with RecordProducer(kafkapy_broker.bootstrap_servers, batch_bytes=500) as producer:
        for number in range(300):
            producer.send(kafkapy_topic, b"%d" % number)
    host, _, port = kafkapy_broker.bootstrap_servers.rpartition(":")
    with SimpleConsumer(host, int(port)) as consumer:
        offset, seen = 0, []
        while messages := list(found := consumer.fetch(kafkapy_topic, 0, offset, 700)):
            seen += messages
            offset = found.next_offset
        assert [(number, message.value) for number, message in seen] == [(n, b"%d" % n) for n in range(300)]
        assert found.high_watermark == 300
        assert consumer.get_offsets_before(kafkapy_topic, 0, LATEST, 10) == [300, 0]
        assert consumer.get_offsets_before(kafkapy_topic, 0, EARLIEST, 10) == [0]
        assert consumer.get_offsets_before(kafkapy_topic, 0, LATEST, 1) == [300]
        with pytest.raises(OffsetOutOfRange) as refused:
            consumer.fetch(kafkapy_topic, 0, 301, 700)
        assert (refused.value.earliest, refused.value.latest) == (0, 300)
        with pytest.raises(KafkaError):
            consumer.get_offsets_before(kafkapy_topic, 7, LATEST, 1)


def test_several_topics_of_a_broker_are_read_at_once(kafkapy_broker):
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        for topic in ("many-1", "many-2"):
            admin.create_topics([NewTopic(topic, 2)])
    with RecordProducer(kafkapy_broker.bootstrap_servers) as producer:
        for topic, partition in itertools.product(("many-1", "many-2"), range(2)):
            producer.send(topic, f"{topic}-{partition}".encode(), partition=partition)
    host, _, port = kafkapy_broker.bootstrap_servers.rpartition(":")
    with SimpleConsumer(host, int(port)) as consumer:
        wanted = [
            FetchRequest(topic, partition, 0, 10_000)
            for partition, topic in itertools.product(range(2), ("many-2", "many-1"))
        ]
        found = consumer.multifetch(wanted)
    assert [values(one) for one in found] == [[f"{one.topic}-{one.partition}".encode()] for one in wanted]
