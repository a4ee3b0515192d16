"""Bad requests: the broker answers with an error or closes the connection, stores nothing, and continues."""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from tests.harness import brokers, raw
from tests.harness.raw import Connection

UNKNOWN_SERVER_ERROR, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE = (
    -1,
    1,
    2,
    3,
    10,
)
INVALID_TOPIC, UNSUPPORTED_VERSION, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 17, 35, 76, 87


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    running = brokers.start(tmp_path_factory.mktemp("bad-input"))
    yield running
    running.stop()


@pytest.fixture
def topic(broker: brokers.Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a topic with one record. Check after the test that the topic still has exactly this record."""
    name = f"t{zlib.crc32(request.node.name.encode())}"
    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic(name) == 0
        assert connection.produce(name, 0, raw.values(b"good")) == (0, 0)
    yield name
    with Connection(broker.bootstrap) as connection:
        assert connection.end_offset(name, 0) == (0, 1), "something bad was stored"
        code, high, records = connection.fetch(name, 0, 0)
        assert (code, high) == (0, 1)
        assert b"good" in records
        assert connection.produce(name, 0, raw.values(b"after")) == (0, 1)


def resident_mib(broker: brokers.Broker) -> float:
    fields = Path(f"/proc/{broker.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def still_serves(broker: brokers.Broker) -> bool:
    with Connection(broker.bootstrap) as connection:
        return connection.ask(raw.API_VERSIONS, 0, b"")[:2] == b"\0\0"


FRAMES_THAT_END_THE_CONNECTION = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "negative size": struct.pack(">i", -1),
    "smallest size": struct.pack(">i", -(2**31)),
    "largest size": struct.pack(">i", 2**31 - 1),
    "above socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "too short for a header": struct.pack(">i", 3) + b"\0\x12\0",
    "garbage": struct.pack(">i", 64) + bytes(range(100, 164)),
    "unknown api": raw.frame(999, 0, b""),
    "negative api": raw.frame(-2, 0, b""),
    "version out of range": raw.frame(raw.METADATA, 99, b""),
    "negative version": raw.frame(raw.METADATA, -1, b""),
    "client id longer than the frame": struct.pack(">ihhih", 10, raw.METADATA, 1, 7, 30_000),
    "array longer than the frame": raw.frame(raw.METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "string longer than the frame": raw.frame(raw.METADATA, 1, struct.pack(">ih", 1, 32_000) + b"x"),
    "negative string": raw.frame(raw.METADATA, 1, struct.pack(">ih", 1, -1)),
    "records longer than the frame": raw.frame(raw.PRODUCE, 3, raw.produce_body("t", 0, b"x" * 70, size=2_000_000)),
}


@pytest.mark.parametrize("sent", FRAMES_THAT_END_THE_CONNECTION.values(), ids=FRAMES_THAT_END_THE_CONNECTION.keys())
def test_a_frame_that_breaks_the_protocol_ends_its_connection_only(
    broker: brokers.Broker, topic: str, sent: bytes
) -> None:
    with Connection(broker.bootstrap) as other, Connection(broker.bootstrap) as connection:
        connection.send(sent)
        assert connection.is_closed_by_broker()
        assert other.ask(raw.API_VERSIONS, 0, b"")[:2] == b"\0\0"


def test_responses_to_requests_before_a_bad_frame_are_sent(broker: brokers.Broker) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.send(raw.frame(raw.API_VERSIONS, 0, b"") + raw.frame(999, 0, b""))
        assert connection.answer()[:2] == b"\0\0"
        assert connection.is_closed_by_broker()


def test_the_log_names_the_peer_and_the_size(broker: brokers.Broker) -> None:
    # The test uses its own address, since only the first lines a second about an address are logged.
    with Connection(broker.bootstrap, source="127.0.0.2") as connection:
        peer = connection.socket.getsockname()[1]
        connection.send(struct.pack(">i", 123_456_789))
        assert connection.is_closed_by_broker()
    output = broker.process.output
    assert any(str(peer) in line and "123456789" in line for line in output.splitlines()) or broker.kind == "kafka"


def test_api_versions_of_an_unknown_version_is_answered_with_the_supported_versions(broker: brokers.Broker) -> None:
    with Connection(broker.bootstrap) as connection:
        answer = connection.ask(raw.API_VERSIONS, 99, b"\0\5who?\0040.1\0")  # header v2: no tags, then the body
        (code, count) = struct.unpack_from(">hi", answer)
        assert code == UNSUPPORTED_VERSION
        offered = [struct.unpack_from(">hhh", answer, 6 + 6 * number) for number in range(count)]
        assert raw.API_VERSIONS in {api for api, _, _ in offered}


@pytest.mark.beyond_kafka
def test_half_a_frame_followed_by_silence_holds_no_memory(broker: brokers.Broker, topic: str) -> None:
    before = resident_mib(broker)
    silent = [Connection(broker.bootstrap) for _ in range(100)]
    try:
        for connection in silent:
            connection.send(struct.pack(">i", 100_000_000) + b"\0\0\0\x03")
        assert still_serves(broker)
        assert resident_mib(broker) - before < 64
    finally:
        for connection in silent:
            connection.socket.close()
    assert still_serves(broker)


def test_a_frame_that_comes_byte_by_byte_is_answered(broker: brokers.Broker) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.socket.setsockopt(6, 1, 1)  # TCP_NODELAY
        for byte in raw.frame(raw.API_VERSIONS, 0, b""):
            connection.send(bytes([byte]))
        assert connection.answer()[:2] == b"\0\0"


ONE = raw.record(0, b"one")
TWO = raw.record(1, b"two")
GOOD = raw.batch([ONE, TWO])
BAD_BATCHES = {
    "wrong crc": (raw.batch([ONE, TWO], crc=1), {CORRUPT_MESSAGE}),
    "one bit flipped": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], {CORRUPT_MESSAGE}),
    "truncated": (GOOD[:-1], {INVALID_RECORD, CORRUPT_MESSAGE}),
    "header only": (GOOD[:61], {INVALID_RECORD, CORRUPT_MESSAGE}),
    "less than a header": (GOOD[:40], {INVALID_RECORD, CORRUPT_MESSAGE}),
    "nothing": (b"", {INVALID_RECORD}),
    "two batches": (GOOD + GOOD, {INVALID_RECORD}),
    "size of zero": (raw.batch([ONE], size=0), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "negative size": (raw.batch([ONE], size=-5), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "size beyond the records": (raw.batch([ONE], size=5000), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "magic of the future": (raw.batch([ONE], magic=3), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "format 1": (raw.batch([ONE], magic=1), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count too large": (raw.batch([ONE, TWO], count=3), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count and last delta too large": (raw.batch([ONE, TWO], count=9, last_delta=8), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "count too small": (raw.batch([ONE, TWO], count=1, last_delta=0), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "largest count": (raw.batch([ONE], count=2**31 - 1, last_delta=2**31 - 2), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "negative count": (raw.batch([ONE], count=-1), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "no records": (raw.batch([]), {INVALID_RECORD}),
    "last delta is not count - 1": (raw.batch([ONE, TWO], last_delta=7), {INVALID_RECORD}),
    "record longer than the batch": (
        raw.batch([raw.record(0, b"x", length=100_000)]),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
    "record of negative length": (raw.batch([raw.record(0, b"x", length=-3)]), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "value longer than its record": (
        raw.batch([raw.record(0, b"x", value_length=2**31 - 1)]),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
    "endless varint": (raw.batch([b"\xff" * 12]), {INVALID_RECORD, CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR}),
    "a control batch": (raw.batch([ONE], attributes=0x20), {INVALID_RECORD}),
}


@pytest.mark.parametrize(("records", "codes"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_a_bad_batch_is_refused_and_nothing_of_it_stored(
    broker: brokers.Broker, topic: str, records: bytes, codes: set[int]
) -> None:
    with Connection(broker.bootstrap) as connection:
        code, base = connection.produce(topic, 0, records)
        assert code in codes
        assert base == -1
        # The connection still works.
        assert connection.produce(topic, 7, raw.values(b"x"))[0] == UNKNOWN_TOPIC_OR_PARTITION


COMPRESSED_NONSENSE = {
    "gzip that is none": raw.batch([ONE], attributes=1),
    "snappy that is none": raw.batch([ONE], attributes=2),
    "lz4 that is none": raw.batch([ONE], attributes=3),
    "gzip cut short": raw.batch([ONE], attributes=1, body=zlib.compress(ONE, wbits=31)[:-9]),
    "gzip of too few records": raw.batch([ONE, TWO], attributes=1, body=zlib.compress(ONE, wbits=31)),
    "snappy frame that lies": raw.batch(
        [ONE], attributes=2, body=b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1)
    ),
    "unknown codec": raw.batch([ONE], attributes=6),
}


@pytest.mark.parametrize("records", COMPRESSED_NONSENSE.values(), ids=COMPRESSED_NONSENSE.keys())
def test_nonsense_under_compression_is_refused(broker: brokers.Broker, topic: str, records: bytes) -> None:
    with Connection(broker.bootstrap) as connection:
        code, base = connection.produce(topic, 0, records)
        assert code != 0
        assert base == -1


def test_zstd_needs_a_request_version_that_allows_it(broker: brokers.Broker, topic: str) -> None:
    records = raw.batch([ONE], attributes=4, body=zstandard.compress(ONE))
    with Connection(broker.bootstrap) as connection:
        assert connection.produce(topic, 0, records, version=6) == (UNSUPPORTED_COMPRESSION, -1)


def packer_of(codec: int) -> Any:
    """Return a compressor for a codec of record batches, with methods compress() and flush()."""
    if codec == 1:
        return zlib.compressobj(9, wbits=31)
    if codec == 3:
        return lz4.frame.LZ4FrameCompressor()
    return zstandard.ZstdCompressor(level=3).compressobj()


@pytest.mark.beyond_kafka
@pytest.mark.parametrize("codec", [1, 3, 4], ids=["gzip", "lz4", "zstd"])
def test_a_zip_bomb_is_refused_and_costs_no_memory(broker: brokers.Broker, topic: str, codec: int) -> None:
    before = resident_mib(broker)
    size = (1 << 30) if codec == 4 else (200 << 20)  # the size of a value of zeros, below 1 MB on the wire
    head = b"\0" + raw.varint(0) + raw.varint(0) + raw.varint(-1) + raw.varint(size)
    packer = packer_of(codec)
    packed = bytearray(packer.begin() if codec == 3 else b"")
    packed += packer.compress(raw.varint(len(head) + size + 1) + head)
    for _ in range(size >> 20):
        packed += packer.compress(bytes(1 << 20))
    packed += packer.compress(raw.varint(0)) + packer.flush()
    bomb = raw.batch([ONE], attributes=codec, body=bytes(packed))
    assert len(bomb) < 1_048_588
    with Connection(broker.bootstrap) as connection:
        code, base = connection.produce(topic, 0, bomb, version=7)
        assert code in {INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE}
        assert base == -1
    assert resident_mib(broker) - before < 64


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "", "x" * 250, "ü", "a\0b"])
def test_an_illegal_topic_name_is_refused(broker: brokers.Broker, name: str) -> None:
    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic(name) == INVALID_TOPIC
    # Metadata v1 creates missing topics, but not this one.
    with Connection(broker.bootstrap) as connection:
        answer = connection.ask(raw.METADATA, 1, raw.array([raw.string(name)]))
        assert struct.pack(">h", INVALID_TOPIC) + raw.string(name) in answer
    if broker.kind == "kafkapy":
        # Only the legal topics of the next test may exist.
        assert not [path for path in broker.data.rglob("*") if path.name.rpartition("-")[0] == name and name]


@pytest.mark.parametrize("name", ["a..b", "x" * 249, "...", "A-Z_0.9"])
def test_a_strange_topic_name_is_legal(broker: brokers.Broker, name: str) -> None:
    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic(name) == 0
        assert connection.produce(name, 0, raw.values(b"x")) == (0, 0)
        assert connection.end_offset(name, 0) == (0, 1)


def test_the_response_names_a_partition_that_does_not_exist(broker: brokers.Broker, topic: str) -> None:
    with Connection(broker.bootstrap) as connection:
        for partition in (1, 2**31 - 1, -1):
            assert connection.produce(topic, partition, raw.values(b"x")) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
            assert connection.fetch(topic, partition, 0)[0] == UNKNOWN_TOPIC_OR_PARTITION
            assert connection.end_offset(topic, partition)[0] == UNKNOWN_TOPIC_OR_PARTITION
        assert connection.produce("not-there", 0, raw.values(b"x")) == (UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("offset", [2, 2**62, -1, -(2**62)])
def test_an_offset_outside_the_log_is_out_of_range(broker: brokers.Broker, topic: str, offset: int) -> None:
    with Connection(broker.bootstrap) as connection:
        code, _, records = connection.fetch(topic, 0, offset)
        assert (code, records) == (OFFSET_OUT_OF_RANGE, b"")


def test_a_record_beyond_the_limit_is_too_large(broker: brokers.Broker, topic: str) -> None:
    with Connection(broker.bootstrap) as connection:
        assert connection.produce(topic, 0, raw.values(bytes(1_100_000))) == (MESSAGE_TOO_LARGE, -1)


def test_a_client_that_leaves_in_the_middle_of_a_request_stores_nothing(broker: brokers.Broker, topic: str) -> None:
    request = raw.frame(raw.PRODUCE, 3, raw.produce_body(topic, 0, raw.values(bytes(500_000))))
    for part in (5, 30, 200_000, len(request) - 1):
        with Connection(broker.bootstrap) as connection:
            connection.send(request[:part])
    assert still_serves(broker)
