"""Messages of Kafka 0.7: messages that its broker wrote, and every kind of invalid message."""

import base64
import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.record import kafka07
from kafkapy.record.compression import GZIP, NAMES, NONE, SNAPPY, compress
from kafkapy.record.kafka07 import CorruptMessage, build_message, iter_messages, messages_in, read_message
from tests.harness.examples import examples

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "kafka-0.7.2"
PARTITIONS = sorted(path.name for path in (GOLDEN / "data").iterdir() if path.is_dir())


def text(payload):
    try:
        return bytes(payload).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def seen(message, start, file):
    """Return a stored message in the form of `expected`."""
    inner = list(messages_in(message))
    # 0.7.2 returns the wrapper's own offset with all inner messages but the last: a fetch can resume there.
    offsets = [start + message.position] * (len(inner) - 1) + [start + message.end]
    found = {
        "file": file,
        "position": message.position,
        "offset": start + message.position,
        "nextOffset": start + message.end,
        "size": message.size,
        "magic": message.magic,
        "codec": NAMES[message.codec],
        "crc": message.crc,
        "valid": message.is_valid,
    }
    if message.magic == 1:
        found["attributes"] = message.attributes
    found["messages"] = [
        {"payload": text(one.payload), "magic": one.magic, "valid": one.is_valid, "reportedOffset": offset}
        for one, offset in zip(inner, offsets, strict=True)
    ]
    return found


@pytest.mark.parametrize("partition", PARTITIONS)
def test_messages_of_kafka_0_7_2_are_read_as_by_its_consumer(partition):
    expected = [json.loads(line) for line in (GOLDEN / "expected" / f"{partition}.jsonl").read_text().splitlines()]
    found = []
    for path in sorted((GOLDEN / "data" / partition).glob("*.kafka")):
        found += [seen(message, int(path.stem), path.name) for message in iter_messages(path.read_bytes())]
    assert found == expected


@pytest.mark.parametrize("partition", PARTITIONS)
def test_uncompressed_messages_are_built_as_by_kafka_0_7_2(partition):
    paths = list((GOLDEN / "data" / partition).glob("*.kafka"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        for message in iter_messages(data):
            built = build_message(bytes(message.payload), magic=message.magic, codec=message.codec)
            assert built == data[message.position : message.end]


def wrapper(codec, *messages):
    return build_message(compress(codec, b"".join(messages)), codec=codec)


def payloads(data, **options):
    return [bytes(one.payload) for message in iter_messages(data) for one in messages_in(message, **options)]


def test_an_empty_payload_and_both_magics():
    data = build_message(b"", magic=0) + build_message(b"") + build_message(b"x", magic=0)
    assert [(m.position, m.size, m.magic) for m in iter_messages(data)] == [(0, 9, 0), (9, 10, 1), (19, 10, 0)]
    assert payloads(data) == [b"", b"", b"x"]


def test_compressed_sets_in_compressed_sets():
    inner = wrapper(SNAPPY, build_message(b"a"), build_message(b"b", magic=0))
    data = wrapper(GZIP, inner, build_message(b"c"), wrapper(GZIP, inner)) + build_message(b"d")
    assert payloads(data) == [b"a", b"b", b"c", b"a", b"b", b"d"]


def test_an_empty_compressed_set_holds_nothing():
    assert payloads(wrapper(GZIP) + build_message(b"x")) == [b"x"]


def test_nesting_is_followed_to_a_limit():
    data = build_message(b"x")
    for _ in range(kafka07.MAX_DEPTH):
        data = wrapper(GZIP, data)
    assert payloads(data) == [b"x"]
    with pytest.raises(CorruptMessage, match="more than 8 deep"):
        payloads(wrapper(GZIP, data))


def test_decompression_ends_at_the_limit_summed_over_all_levels():
    bomb = wrapper(GZIP, wrapper(GZIP, build_message(bytes(10_000))), wrapper(GZIP, build_message(bytes(10_000))))
    assert len(payloads(bomb, limit=21_000)) == 2
    with pytest.raises(CorruptMessage, match="more than the limit"):
        payloads(bomb, limit=20_000)


@pytest.mark.parametrize("cut", range(16))
def test_a_cut_message_is_the_end(cut):
    whole = build_message(b"before")
    assert payloads(whole + whole[:cut]) == [b"before"] + [b"before"] * (cut == len(whole))


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 4])
def test_an_impossible_length_is_refused(length):
    data = build_message(b"x") + struct.pack(">i", length) + bytes(64)
    with pytest.raises(CorruptMessage, match=f"a length of {length} bytes") as caught:
        payloads(data)
    assert caught.value.position == 11


def test_a_length_beyond_the_end_is_a_cut_message():
    assert read_message(struct.pack(">ib", 2**31 - 1, 1) + bytes(100)) is None


def test_magic_1_needs_room_for_its_attributes():
    with pytest.raises(CorruptMessage, match="too few for a message with magic 1"):
        read_message(struct.pack(">ib", 5, 1) + bytes(4))


@pytest.mark.parametrize("magic", [2, 127, 255])
def test_a_magic_of_later_versions_is_refused(magic):
    with pytest.raises(CorruptMessage, match=f"magic {magic}, where"):
        read_message(struct.pack(">iB", 20, magic) + bytes(20))


def test_a_wrong_crc_is_found_at_every_level():
    bad = bytearray(build_message(b"payload"))
    bad[-1] ^= 1
    with pytest.raises(CorruptMessage, match="the message has CRC"):
        payloads(bytes(bad))
    with pytest.raises(CorruptMessage, match="a message in it has CRC") as caught:
        payloads(build_message(b"x") + wrapper(GZIP, bytes(bad)))
    assert caught.value.position == 11


def test_codec_3_and_broken_data():
    with pytest.raises(CorruptMessage, match="codec 3"):
        payloads(build_message(b"x", codec=3))
    with pytest.raises(CorruptMessage, match="cannot be unpacked"):
        payloads(build_message(b"not gzip", codec=GZIP))


def test_a_compressed_set_that_ends_in_a_part_of_a_message():
    with pytest.raises(CorruptMessage, match="has 7 bytes left over"):
        payloads(wrapper(GZIP, build_message(b"x"), build_message(b"y")[:7]))


def test_higher_attribute_bits_are_ignored():
    payload = b"x"
    data = struct.pack(">ibBI", 7, 1, 0xFC, zlib.crc32(payload)) + payload
    message = read_message(data)
    assert message is not None
    assert (message.attributes, message.codec) == (0xFC, NONE)


@given(st.binary(max_size=200))
@settings(max_examples=examples(200))
def test_any_bytes_are_read_or_refused(data):
    try:
        payloads(data, limit=1 << 20)
    except CorruptMessage:
        pass


@given(st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([0, 1]), st.sampled_from([None, GZIP, SNAPPY]))))
@settings(max_examples=examples(60))
def test_built_messages_are_read_back(messages):
    parts = []
    for payload, magic, codec in messages:
        plain = build_message(payload, magic=magic)
        parts.append(plain if codec is None else wrapper(codec, plain))
    assert payloads(b"".join(parts)) == [payload for payload, _, _ in messages]
