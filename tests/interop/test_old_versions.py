"""The versions of Produce, Fetch and ListOffsets of clients before Kafka 0.11, with topics of every message format.

Bytes are compared. The same tests run with Apache Kafka (KAFKAPY_INTEROP_BROKER=kafka).
"""

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import brokers, raw
from tests.harness.kafka_tools import complaints, kafka_dump
from tests.harness.raw import batch, record
from tests.harness.raw_sets import APPEND_TIME, Found, OldConnection, deep, gzipped, message, read_set

NONE, CORRUPT, TOO_LARGE, UNSUPPORTED_VERSION = 0, 2, 10, 35
NOT_FOR_FORMAT, UNSUPPORTED_CODEC, INVALID = 43, 76, 87
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}
STAMP = 1_600_000_000_000
KEYS = [(b"k0", b"v0"), (None, b"v1"), (b"k2", None), (b"", b"")]


@pytest.fixture(scope="module")
def old_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Start a broker with a protocol version before 3.0, so that the topics' message formats are used."""
    running = brokers.start(tmp_path_factory.mktemp("old"), {"inter.broker.protocol.version": "2.8"})
    yield running
    running.stop()


@pytest.fixture
def wire(old_broker: brokers.Broker) -> Iterator[OldConnection]:
    with OldConnection(old_broker.bootstrap) as connection:
        yield connection


def produced(magic: int, compressed: bool) -> bytes:
    """Return a set of four messages, with offsets from 0, like an old client sends it."""
    each = [
        message(value, key=key, offset=at, magic=magic, timestamp=STAMP + at) for at, (key, value) in enumerate(KEYS)
    ]
    if not compressed:
        return b"".join(each)
    return gzipped(each, offset=len(each) - 1, magic=magic, timestamp=STAMP + 3 if magic else -1)


def fetched(wire: OldConnection, topic: str, version: int, offset: int = 0) -> list[Found]:
    """Return all messages from `offset` on, in several fetches if the converted messages exceed the response size."""
    found: list[Found] = []
    while True:
        code, high, data = wire.fetch_set(topic, offset, version=version)
        assert code == NONE
        if offset == high:
            assert not data
            return found
        found += [one for one in deep(read_set(data)[0]) if one.offset >= offset]
        assert found
        assert found[-1].offset >= offset
        offset = found[-1].offset + 1


@pytest.mark.parametrize(
    ("produce", "stored", "compressed"), list(itertools.product((0, 1, 2), FORMATS, (False, True)))
)
def test_an_old_consumer_gets_the_records_of_an_old_producer(
    wire: OldConnection, topic_name: str, produce: int, stored: int, compressed: bool
) -> None:
    """The records are the same for all versions of both and every stored format, with timestamps if all three support
    them."""
    sent = 1 if produce == 2 else 0
    wire.make_topic(topic_name, message_format_version=FORMATS[stored])
    for expected in (0, 4):
        answer = wire.produce_set(topic_name, produced(sent, compressed), version=produce)
        assert answer[:2] == (NONE, expected)
        assert answer[2:] == ((None, None), (None, 0), (-1, 0))[produce]
    for version in (0, 1, 2, 3):
        count = 0 if version < 2 else min(stored, 1)
        found = fetched(wire, topic_name, version)
        assert [(one.offset, one.key, one.value) for one in found] == [(at, *KEYS[at % 4]) for at in range(8)]
        assert {one.magic for one in found} == {count}
        stamps = {one.timestamp for one in found}
        if count == 0:
            assert stamps == {None}
        elif sent == 0:
            assert stamps == {-1}
        else:
            assert [one.timestamp for one in found] == [STAMP + at % 4 for at in range(8)]


@pytest.mark.parametrize("stored", FORMATS)
def test_an_old_consumer_gets_the_records_of_a_new_producer(wire: OldConnection, topic_name: str, stored: int) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[stored])
    assert wire.produce(topic_name, 0, batch([record(at, b"x" * at) for at in range(3)])) == (NONE, 0)
    for version in (0, 1, 2, 3):
        assert [(one.offset, one.value) for one in fetched(wire, topic_name, version)] == [
            (at, b"x" * at) for at in range(3)
        ]


@pytest.mark.parametrize("stored", [0, 1])
def test_messages_stored_in_a_format_that_the_client_supports_are_sent_unchanged(
    wire: OldConnection, topic_name: str, stored: int
) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[stored])
    sent = produced(stored, False)
    assert wire.produce_set(topic_name, sent, version=2)[0] == NONE
    for version in (0, 1) if stored == 0 else (2, 3):
        assert wire.fetch_set(topic_name, 0, version=version) == (NONE, 4, sent)
    assert wire.fetch(topic_name, 0, 0) == (NONE, 4, sent)  # a new client gets the same bytes


def test_a_first_message_above_the_limit_is_cut_up_to_version_2_and_complete_since_version_3(
    wire: OldConnection, topic_name: str
) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[1])
    sent = message(b"a" * 500, magic=1, timestamp=STAMP) + message(b"b" * 500, offset=1, magic=1, timestamp=STAMP)
    assert wire.produce_set(topic_name, sent, version=2)[0] == NONE
    first = len(sent) // 2
    for limit in (20, 100, first - 1, first, first + 50):
        assert wire.fetch_set(topic_name, 0, version=2, max_bytes=limit) == (NONE, 2, sent[:limit])
        whole = sent[: max(limit, first)]
        assert wire.fetch_set(topic_name, 0, version=3, max_bytes=limit) == (NONE, 2, whole)
    assert wire.fetch_set(topic_name, 0, version=2, max_bytes=0) == (NONE, 2, b"")
    assert wire.fetch_set(topic_name, 0, version=3, max_bytes=5000, all_bytes=10) == (NONE, 2, sent[:first])


def test_uncompressed_records_before_the_fetch_offset_are_left_out(wire: OldConnection, topic_name: str) -> None:
    """They can be left out because the batch becomes single messages. Some versions of librdkafka rely on that."""
    wire.make_topic(topic_name)
    assert wire.produce(topic_name, 0, raw.values(b"a", b"b", b"c", b"d")) == (NONE, 0)
    for version in (0, 2, 3):
        _, _, data = wire.fetch_set(topic_name, 2, version=version)
        assert [(one.offset, one.value) for one in read_set(data)[0]] == [(2, b"c"), (3, b"d")]


def test_a_compressed_batch_becomes_one_wrapper_from_its_beginning(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name)
    body = batch([record(at, b"%d" % at) for at in range(4)], codec=raw.GZIP)
    assert wire.produce(topic_name, 0, body) == (NONE, 0)
    for version, magic in ((1, 0), (3, 1)):
        code, _, data = wire.fetch_set(topic_name, 2, version=version)
        assert code == NONE
        wrappers, rest = read_set(data)
        assert not read_set(rest)[0]
        assert [(one.offset, one.magic, one.key) for one in wrappers] == [(3, magic, None)]
        assert [(one.offset, one.value) for one in deep(wrappers)] == [(at, b"%d" % at) for at in range(4)]


def test_space_that_the_conversion_does_not_fill_is_a_cut_message(wire: OldConnection, topic_name: str) -> None:
    """The size is sent before later batches are converted, and becomes too large because headers are dropped."""
    wire.make_topic(topic_name)
    size = 0
    for at in range(30):
        header = raw.varint(1) + raw.varint(1) + b"h" + raw.varint(3000) + bytes(3000)
        one = b"\0\0\0" + raw.varint(-1) + raw.varint(2) + b"%02d" % at + header
        body = batch([raw.varint(len(one)) + one])
        size += len(body)
        assert wire.produce(topic_name, 0, body) == (NONE, at)
    for version in (0, 1, 2, 3):
        code, _, data = wire.fetch_set(topic_name, 0, version=version)
        assert (code, len(data)) == (NONE, size)
        found, rest = read_set(data)
        assert [(one.offset, one.value) for one in found] == [(at, b"%02d" % at) for at in range(30)]
        offset, length = struct.unpack_from(">qi", rest)
        assert offset == -1
        assert length > len(rest) - 12
    code, _, data = wire.fetch_set(topic_name, 3, version=3, max_bytes=7000)  # two batches and a part of a third
    assert (code, len(data)) == (NONE, 7000)
    assert [one.offset for one in read_set(data)[0]] == [3, 4]


def test_converted_records_larger_than_stored_ones_are_sent_up_to_the_announced_size(
    wire: OldConnection, topic_name: str
) -> None:
    """Small records need less space in format 2 than converted. The first batch is complete nevertheless."""
    wire.make_topic(topic_name)
    for start in range(0, 400, 100):
        assert wire.produce(topic_name, 0, batch([record(at, b"") for at in range(100)])) == (NONE, start)
    code, _, data = wire.fetch_set(topic_name, 0, version=2)
    assert code == NONE
    assert len(data) == 100 * 34
    found, rest = read_set(data)
    assert [one.offset for one in found] == list(range(100))
    assert not rest
    assert [one.offset for one in fetched(wire, topic_name, 3)] == list(range(400))


def test_append_time_is_returned_since_version_2(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[1], message_timestamp_type="LogAppendTime")
    for compressed in (False, True):
        code, _, stamped, _ = wire.produce_set(topic_name, produced(1, compressed), version=2)
        assert code == NONE
        assert stamped is not None
        assert stamped > STAMP + 1000
        _, high, data = wire.fetch_set(topic_name, 4 if compressed else 0, version=2)
        found, _ = read_set(data)
        assert all(one.attributes & APPEND_TIME for one in found)
        assert {one.timestamp for one in found} == {stamped}
        assert {one.timestamp for one in deep(found)} == {stamped}
        assert high == (8 if compressed else 4)
    assert wire.produce_set(topic_name, produced(0, False), version=0)[:2] == (NONE, 8)
    assert all(one.timestamp and one.timestamp > STAMP + 1000 for one in fetched(wire, topic_name, 3, 8))


def test_append_time_is_returned_though_format_0_cannot_store_it(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[0], message_timestamp_type="LogAppendTime")
    code, _, stamped, _ = wire.produce_set(topic_name, produced(1, False), version=2)
    assert code == NONE
    assert stamped is not None
    assert stamped > STAMP + 1000
    assert {one.timestamp for one in fetched(wire, topic_name, 2)} == {None}


def test_append_time_of_a_batch_is_that_of_all_its_messages(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, message_timestamp_type="LogAppendTime")
    for codec in (0, raw.GZIP):
        assert wire.produce(topic_name, 0, batch([record(0, b"a"), record(1, b"b")], codec=codec))[0] == NONE
    _, _, data = wire.fetch_set(topic_name, 0, version=3)
    found, _ = read_set(data)
    assert all(one.attributes & APPEND_TIME for one in found)
    assert len({one.timestamp for one in deep(found[:2])}) == 1


def nested() -> bytes:
    inner = gzipped([message(b"a")], offset=0)
    return gzipped([inner], offset=0)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (message(b"a", crc=1), CORRUPT),
        (message(b"a") + message(b"b", offset=1, crc=1), CORRUPT),
        (message(b"a", size=5), CORRUPT),
        (gzipped([message(b"a"), message(b"b", offset=1, crc=7)], offset=1), CORRUPT),
        (nested(), INVALID),
        (gzipped([message(b"a", magic=1)], offset=0), INVALID),
        (message(b"a" * 1_100_000), TOO_LARGE),
        (message(b"a") + message(b"b", magic=1), INVALID),
    ],
    ids=["crc", "second crc", "size", "inner crc", "nested", "inner magic", "too large", "mixed"],
)
@pytest.mark.parametrize("stored", FORMATS)
def test_invalid_sets_are_refused(wire: OldConnection, topic_name: str, stored: int, records: bytes, code: int) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[stored])
    assert wire.produce_set(topic_name, records, version=1)[:2] == (code, -1)
    assert wire.end_offset(topic_name, 0) == (NONE, 0)


def test_an_empty_set_and_half_a_message_are_accepted_as_nothing(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name)
    for records in (b"", message(b"abc")[:-1]):
        assert wire.produce_set(topic_name, records, version=1)[:2] == (NONE, -1)
    whole = message(b"abc")
    assert wire.produce_set(topic_name, whole + whole[:-1], version=1)[:2] == (NONE, 0)
    assert wire.end_offset(topic_name, 0) == (NONE, 1)


def test_new_versions_accept_no_message_sets(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[1])
    assert wire.produce(topic_name, 0, message(b"a", magic=1)) == (INVALID, -1)


@pytest.mark.parametrize("stored", [0, 1])
def test_old_formats_cannot_store_producer_ids_and_headers(wire: OldConnection, topic_name: str, stored: int) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[stored])
    idempotent = bytearray(batch([record(0, b"a")]))
    struct.pack_into(">qhi", idempotent, 43, 5, 0, 0)
    struct.pack_into(">I", idempotent, 17, raw.crc32c.crc32c(bytes(idempotent[21:])))
    assert wire.produce(topic_name, 0, bytes(idempotent)) == (NOT_FOR_FORMAT, -1)
    one = b"\0\0\0" + raw.varint(-1) + raw.varint(1) + b"v" + raw.varint(1) + raw.varint(1) + b"h" + raw.varint(-1)
    code, _ = wire.produce(topic_name, 0, batch([raw.varint(len(one)) + one]))
    assert code == -1
    assert wire.end_offset(topic_name, 0) == (NONE, 0)


def test_zstd_is_not_sent_to_clients_that_do_not_support_it(wire: OldConnection, topic_name: str) -> None:
    import zstandard

    wire.make_topic(topic_name)
    wire.make_topic(topic_name + "-z", compression_type="zstd")
    payload = record(0, b"zzz")
    body = batch([payload], body=zstandard.compress(payload), attributes=4)
    assert wire.produce(topic_name, 0, raw.values(b"a"), version=7) == (NONE, 0)
    assert wire.produce(topic_name, 0, body, version=7) == (NONE, 1)
    assert wire.produce(topic_name, 0, body) == (UNSUPPORTED_CODEC, -1)
    assert wire.produce(topic_name + "-z", 0, raw.values(b"a"), version=7) == (NONE, 0)
    for version in (0, 1, 2, 3):
        code, _, data = wire.fetch_set(topic_name, 0, version=version)  # returns the batch before it
        assert (code, [one.value for one in read_set(data)[0]]) == (NONE, [b"a"])
        assert wire.fetch_set(topic_name, 1, version=version) == (UNSUPPORTED_CODEC, -1, b"")
        assert wire.fetch_set(topic_name + "-z", 0, version=version) == (UNSUPPORTED_CODEC, -1, b"")


def test_converting_can_be_forbidden(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, message_downconversion_enable="false")
    wire.make_topic(topic_name + "-1", message_downconversion_enable="false", message_format_version=FORMATS[1])
    for topic in (topic_name, topic_name + "-1"):
        assert wire.produce(topic, 0, raw.values(b"a")) == (NONE, 0)
    for version in (0, 1, 2, 3):
        assert wire.fetch_set(topic_name, 0, version=version) == (UNSUPPORTED_VERSION, -1, b"")
    assert wire.fetch(topic_name, 0, 0)[0] == NONE
    assert wire.fetch_set(topic_name + "-1", 0, version=1) == (UNSUPPORTED_VERSION, -1, b"")
    assert [one.value for one in fetched(wire, topic_name + "-1", 2)] == [b"a"]


def test_a_topic_of_format_0_has_no_timestamps_to_search(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[0])
    assert wire.produce_set(topic_name, produced(1, False), version=2)[0] == NONE
    for timestamp in (STAMP, 0):
        assert wire.offset_of(topic_name, timestamp) == (NOT_FOR_FORMAT, -1, -1)
    assert wire.offset_of(topic_name, -2) == (NONE, -1, 0)
    assert wire.offset_of(topic_name, -1) == (NONE, -1, 4)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("stored", [1, 2])
def test_times_are_found_in_messages_and_wrappers(
    wire: OldConnection, topic_name: str, stored: int, compressed: bool
) -> None:
    wire.make_topic(topic_name, message_format_version=FORMATS[stored], index_interval_bytes="1")
    for _ in range(3):
        assert wire.produce_set(topic_name, produced(1, compressed), version=2)[0] == NONE
    assert wire.offset_of(topic_name, STAMP) == (NONE, STAMP, 0)
    assert wire.offset_of(topic_name, STAMP + 2) == (NONE, STAMP + 2, 2)
    assert wire.offset_of(topic_name, STAMP + 4) == (NONE, -1, -1)
    assert wire.largest_time(topic_name) == (NONE, STAMP + 3, 3)


def test_segments_are_listed_for_version_0(wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name, segment_bytes="100")
    for at in range(4):
        assert wire.produce(topic_name, 0, raw.values(b"a")) == (NONE, at)
    assert wire.segment_offsets(topic_name, -1, 100) == (NONE, [4, 3, 2, 1, 0])
    assert wire.segment_offsets(topic_name, -1, 2) == (NONE, [4, 3])
    assert wire.segment_offsets(topic_name, -2, 100) == (NONE, [0])
    assert wire.segment_offsets(topic_name, 1, 100) == (NONE, [])
    assert wire.segment_offsets(topic_name, 1 << 60, 3, replica=-2) == (NONE, [4, 3, 2])
    assert wire.segment_offsets(topic_name + "-none", -1, 1) == (3, [])


def test_a_fetch_waits_for_messages(old_broker: brokers.Broker, wire: OldConnection, topic_name: str) -> None:
    wire.make_topic(topic_name)
    assert wire.fetch_set(topic_name, 0, version=1, wait_ms=50, min_bytes=1) == (NONE, 0, b"")
    wire.send(raw.frame(raw.FETCH, 1, wire.fetch_body(topic_name, 0, version=1, wait_ms=20_000, min_bytes=1)))
    with OldConnection(old_broker.bootstrap) as other:
        assert other.produce_set(topic_name, message(b"late"), version=0)[0] == NONE
    assert b"late" in wire.answer()


@pytest.mark.other_runtime
def test_kafkas_tool_finds_no_error_in_old_formats(tmp_path: Path) -> None:
    """The tool checks logs and indexes of many segments, of every stored format and every kind of producer."""
    broker = brokers.start(tmp_path, {"inter.broker.protocol.version": "2.8"})
    wire = OldConnection(broker.bootstrap)
    small = {"segment_bytes": "3000", "index_interval_bytes": "200"}
    for stored, version in FORMATS.items():
        wire.make_topic(f"f{stored}", message_format_version=version, **small)
        wire.make_topic(f"f{stored}-gzip", message_format_version=version, compression_type="gzip", **small)
        for at in range(20):
            for name in (f"f{stored}", f"f{stored}-gzip"):
                for compressed in (False, True):
                    assert wire.produce_set(name, produced(0, compressed), version=1)[0] == NONE
                    assert wire.produce_set(name, produced(1, compressed), version=2)[0] == NONE
                assert wire.produce(name, 0, batch([record(0, b"%d" % at)], codec=raw.GZIP))[0] == NONE
    wire.socket.close()
    broker.stop()
    files = sorted(path for path in broker.data.glob("f*-0/*") if path.suffix in (".log", ".index", ".timeindex"))
    assert len(files) > 6 * 3 * 3
    output = kafka_dump(broker.data, [path.relative_to(broker.data) for path in files], "--deep-iteration")
    assert not complaints(output)
    assert all(f"magic: {magic} " in output for magic in FORMATS)
