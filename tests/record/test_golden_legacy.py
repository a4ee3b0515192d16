"""Every entry that Kafka 0.8.2.2, 0.10.2.2 and 3.9.1 wrote in formats 0 and 1 is decoded as by Kafka, and back."""

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkapy._ext.batch import CorruptBatch
from kafkapy._ext.entries import check_entry
from kafkapy._ext.message_writer import MessagesEncoder, wrap
from kafkapy.record import compression
from kafkapy.record.batch import find_timestamp, records_of
from kafkapy.record.legacy import build_set, check, iter_entries, read_entry, set_of

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
FOLDERS = ("kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-v0-v1")
TYPES = {None: None, "CreateTime": 0, "LogAppendTime": 1}


class GoldenEntry(NamedTuple):
    folder: str
    partition: str
    file: str
    position: int
    bytes: bytes
    expected: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.partition}/{self.file}@{self.position}"

    @property
    def wrapper(self) -> bool:
        return self.expected["magic"] < 2 and self.expected["codec"] != "none"


def value_of(text):
    """Return the bytes of a key, value or header value as `expected` writes it."""
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


@cache
def log_file(folder, partition, file):
    return (GOLDEN / folder / "data" / partition / file).read_bytes()


def golden_entries():
    for folder in FOLDERS:
        for lines in sorted((GOLDEN / folder / "expected").glob("*.jsonl")):
            for line in lines.read_text().splitlines():
                expected = json.loads(line)
                data = log_file(folder, lines.stem, expected["file"])
                start = expected["position"]
                stored = data[start : start + expected["size"]]
                yield GoldenEntry(folder, lines.stem, expected["file"], start, stored, expected)


ENTRIES = tuple(golden_entries())
LEGACY = tuple(one for one in ENTRIES if one.expected["magic"] < 2)
PARTITIONS = sorted({(one.folder, one.partition) for one in ENTRIES})
EACH_PARTITION = pytest.mark.parametrize(("folder", "partition"), PARTITIONS)


def time_of(record):
    """Return the timestamp. Format 0 has none: null in `expected`, -1 for a consumer."""
    return -1 if record["timestamp"] is None else record["timestamp"]


def of(folder, partition):
    return [one for one in ENTRIES if (one.folder, one.partition) == (folder, partition)]


def test_all_kinds_of_entries_are_there():
    kinds = {(one.expected["magic"], one.expected["codec"], one.expected.get("timestampType")) for one in LEGACY}
    codecs = ("none", "gzip", "snappy", "lz4")
    assert kinds >= {(0, codec, None) for codec in codecs} | {(1, codec, "CreateTime") for codec in codecs}
    assert kinds >= {(1, "none", "LogAppendTime"), (1, "gzip", "LogAppendTime")}
    assert len(LEGACY) > 1000


@EACH_PARTITION
def test_headers_are_decoded_as_by_kafka(folder, partition):
    for one in of(folder, partition):
        header, expected = check_entry(one.bytes), one.expected
        assert check(one.bytes, header).crc == expected["crc"], one.name
        seen = (header.size, header.magic, compression.NAMES[header.codec], header.last_offset)
        assert seen == (expected["size"], expected["magic"], expected["codec"], expected["lastOffset"]), one.name
        assert header.max_timestamp == expected.get("maxTimestamp", -1), one.name
        if header.magic < 2:
            assert header.timestamp_type == TYPES[expected["timestampType"]], one.name


@EACH_PARTITION
def test_records_are_decoded_as_by_kafka(folder, partition):
    for one in of(folder, partition):
        seen = records_of(one.bytes, read_entry(one.bytes))
        assert seen[0].offset == one.expected["baseOffset"], one.name
        assert [(record.offset, record.timestamp, record.key, record.value) for record in seen] == [
            (expected["offset"], time_of(expected), value_of(expected["key"]), value_of(expected["value"]))
            for expected in one.expected["records"]
        ], one.name


@EACH_PARTITION
def test_records_are_found_by_their_timestamp(folder, partition):
    for one in of(folder, partition):
        header, records = read_entry(one.bytes), one.expected["records"]
        for time in {time_of(record) for record in records}:
            expected = next((record["offset"], time_of(record)) for record in records if time_of(record) >= time)
            assert find_timestamp(one.bytes, header, time) == expected, one.name
        last = records[-1]["offset"]
        assert find_timestamp(one.bytes, header, -1, last) == (last, time_of(records[-1])), one.name
        assert find_timestamp(one.bytes, header, header.max_timestamp + 1) is None, one.name


def rebuilt(one):
    """Return the entry encoded again from its decoded messages."""
    header = read_entry(one.bytes)
    records = records_of(one.bytes, header)
    if one.wrapper and header.timestamp_type == 1 and one.folder == "kafka-0.10.2.2":
        # That broker stored the producer's messages, and wrote the append time only to the wrapper.
        inner = MessagesEncoder(1)
        for stored in iter_entries(packed := set_of(one.bytes, header)):
            (record,) = records_of(packed, stored)
            inner.append(record.offset, record.timestamp, record.key, record.value)
        payload = compression.compress(header.codec, inner.payload())
        return wrap(payload, 1, header.codec, header.offset, header.timestamp, 1)
    return build_set(
        [(record.timestamp, record.key, record.value) for record in records],
        header.magic,
        header.codec,
        offsets=[record.offset for record in records],
        timestamp_type=header.timestamp_type or 0,
        append_time=header.timestamp,
    )


def same_but_for_the_compressor(rebuilt_set, original):
    """Return True if the entries are equal except for the compressed bytes: other compressors choose other matches."""
    if rebuilt_set == original:
        return True
    ours, theirs = check_entry(rebuilt_set), check_entry(original)
    end = 26 if ours.magic else 18
    return (
        set_of(rebuilt_set, ours) == set_of(original, theirs)
        and rebuilt_set[:8] == original[:8]
        and rebuilt_set[16:end] == original[16:end]
    )


@EACH_PARTITION
def test_entries_encoded_again_are_the_same(folder, partition):
    for one in of(folder, partition):
        if one.expected["magic"] == 2:
            continue
        rebuilt_set = rebuilt(one)
        assert same_but_for_the_compressor(rebuilt_set, one.bytes) if one.wrapper else rebuilt_set == one.bytes, (
            one.name
        )


def test_lz4_frames_equal_kafkas_byte_for_byte_with_the_right_or_the_wrong_header_checksum():
    wrappers = [one for one in LEGACY if one.expected["codec"] == "lz4"]
    exact = [rebuilt(one) == one.bytes for one in wrappers]
    assert sum(exact) > len(exact) * 0.9
    headers = {
        (one.expected["magic"], one.bytes[(34 if one.expected["magic"] else 26) :][:7].hex()) for one in wrappers
    }
    assert headers == {(0, "04224d1860401a"), (1, "04224d18604082")}


def test_entries_of_mixed_formats_follow_each_other_to_the_end_of_a_segment():
    for folder, partition, file in sorted({(one.folder, one.partition, one.file) for one in ENTRIES}):
        data = log_file(folder, partition, file)
        headers = list(iter_entries(data))
        assert [header.position for header in headers] == [
            one.position for one in of(folder, partition) if one.file == file
        ]
        assert headers[-1].next_position == len(data)


def test_a_flipped_bit_is_detected_by_the_checksum():
    for one in LEGACY[::7]:
        for place in range(16, len(one.bytes), 11):
            broken = bytearray(one.bytes)
            broken[place] ^= 0x10
            with pytest.raises(CorruptBatch):
                check_entry(broken)
