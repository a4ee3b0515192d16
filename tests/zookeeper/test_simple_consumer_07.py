"""The SimpleConsumer with a broker of Kafka 0.7: byte offsets, several partitions in one request, refused calls."""

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.client.original.simple.messages import FetchRequest, MessageTooLarge
from kafkapy.client.original.simple.simple_consumer import EARLIEST, LATEST, SimpleConsumer
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.kafka07 import CorruptMessage
from tests.harness.broker_07 import Broker07
from tests.harness.golden_07 import TOPICS_07, expected

SEGMENTS = [0, 506, 907]  # of gzip-segments


@pytest.fixture
def consumer(broker_07: Broker07) -> Iterator[SimpleConsumer]:
    with SimpleConsumer("127.0.0.1", broker_07.port, timeout_s=10, broker_version="0.7") as consumer:
        yield consumer


def end_of(partition: str) -> int:
    return expected(partition)[-1][1]


def test_successive_fetches_read_the_whole_partition(consumer: SimpleConsumer) -> None:
    for topic, max_bytes in product(TOPICS_07, [1, 150, 100_000]):
        offset, got = 0, []
        while (messages := consumer.fetch(topic, 0, offset, max_bytes)).valid_bytes:
            got += [(at, message.value, message.key, message.timestamp) for at, message in messages]
            assert messages.next_offset == offset + messages.valid_bytes
            offset = messages.next_offset
        assert got == [(at, value, None, -1) for at, _, value in expected(f"{topic}-0")]
        assert offset == end_of(f"{topic}-0")


def test_a_message_that_is_cut_off_is_recognized(consumer: SimpleConsumer) -> None:
    first, second, *_ = expected("none-0")
    (messages,) = consumer.multifetch([FetchRequest("none", 0, 0, second[0] + 3)])
    assert (messages.valid_bytes, messages.size_in_bytes, messages.is_partial) == (second[0], second[0] + 3, True)
    assert messages.first_size == second[0]
    assert [message.value for _, message in messages] == [first[2]]
    (messages,) = consumer.multifetch([FetchRequest("none", 0, 0, 7)])
    assert (messages.valid_bytes, messages.first_size, messages.is_partial) == (0, second[0], True)


def test_one_response_holds_several_partitions_each_with_its_error(consumer: SimpleConsumer) -> None:
    wanted = [("two-partitions", 0, 0), ("none", 0, 10**9), ("two-partitions", 1, 0), ("none", 5, 0), ("nowhere", 0, 0)]
    sets = consumer.multifetch([FetchRequest(*where, 100_000) for where in wanted])
    assert [one.offset for one in sets] == [0, 10**9, 0, 0, 0]
    for number, partition in ((0, 0), (2, 1)):
        values = [value for _, _, value in expected(f"two-partitions-{partition}")]
        assert [message.value for _, message in sets[number]] == values
    gone = sets[1].error
    assert isinstance(gone, OffsetOutOfRange)
    assert (gone.earliest, gone.latest) == (0, end_of("none-0"))
    assert isinstance(sets[3].error, KafkaError)
    assert sets[3].error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert (list(sets[4]), sets[4].error) == ([], None)


def test_get_offsets_before_returns_the_starts_of_segments(consumer: SimpleConsumer) -> None:
    end = end_of("gzip-segments-0")
    assert consumer.get_offsets_before("gzip-segments", 0, LATEST, 10) == [end, *reversed(SEGMENTS)]
    assert consumer.get_offsets_before("gzip-segments", 0, LATEST, 2) == [end, SEGMENTS[-1]]
    assert consumer.get_offsets_before("gzip-segments", 0, EARLIEST, 10) == [0]
    later = round(time.time() * 1000) + 60_000
    assert consumer.get_offsets_before("gzip-segments", 0, later, 10) == [end, *reversed(SEGMENTS)]
    assert consumer.get_offsets_before("gzip-segments", 0, 1, 10) == []


def test_each_read_error_is_raised_with_its_code(consumer: SimpleConsumer, broker_07: Broker07, data_07: Path) -> None:
    with pytest.raises(OffsetOutOfRange, match=f"it has 0 to {end_of('none-0') - 1}"):
        consumer.fetch("none", 0, end_of("none-0") + 1, 1000)
    with pytest.raises(ConnectionFailed, match="it closed the connection"):
        consumer.get_offsets_before("none", 7, LATEST, 1)
    small = SimpleConsumer("127.0.0.1", broker_07.port, max_buffer=20, broker_version="0.7")
    with pytest.raises(MessageTooLarge):
        small.fetch("gzip", 0, 0, 10)
    small.close()
    reset = {"autooffset.reset": "smallest"}
    with SimpleConsumer("127.0.0.1", broker_07.port, properties=reset, broker_version="0.7") as again:
        assert next(iter(again.fetch("none", 0, 10**9, 1000)))[0] == 0
    segment = data_07 / "none-0" / f"{0:020}.kafka"
    stored = bytearray(segment.read_bytes())
    stored[8] ^= 1
    segment.write_bytes(stored)
    with pytest.raises(CorruptMessage, match="has CRC"):
        list(consumer.fetch("none", 0, 0, 1000))


def test_a_closed_connection_is_opened_again_for_the_next_request(
    consumer: SimpleConsumer, broker_07: Broker07
) -> None:
    with SimpleConsumer("127.0.0.1", broker_07.port, broker_version="0.7") as other:
        other.fetch("none", 0, 0, 1000)
        with pytest.raises(ConnectionFailed):
            other.get_offsets_before("none", 7, LATEST, 1)  # the broker closes the connection
        assert other.fetch("none", 0, 0, 1000).valid_bytes


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"broker_version is '0\.6'; it can be 0\.7"):
        SimpleConsumer("127.0.0.1", 1, broker_version="0.6")
