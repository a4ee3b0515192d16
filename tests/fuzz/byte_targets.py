"""Fuzz targets of the bytes layer: batches, records, codecs, validation, segment scans."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kafkapy._ext import batch, segment_scan
from kafkapy._ext.batch import CorruptBatch
from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.record_writer import renumber
from kafkapy._ext.records import CorruptRecords
from kafkapy.record import compression, control
from kafkapy.record.batch import BatchBuilder, build, find_timestamp, payload_of, records_of
from kafkapy.record.validation import RecordError, assign, validate
from tests.fuzz.mutation import mutate
from tests.fuzz.target import Target
from tests.harness.batches import iter_batches

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "kafka-3.9.1-v2" / "data"
LIMIT = 1 << 20
NOW = 1_600_000_000_000
BROKEN = (CorruptBatch, CorruptRecords, compression.DecompressionError)


@cache
def segments() -> tuple[bytes, ...]:
    return tuple(data for path in sorted(GOLDEN.glob("*/*.log")) if (data := path.read_bytes()))


@cache
def batches() -> tuple[bytes, ...]:
    """Return all golden batches of moderate size, with base offset 0 as a producer sends them."""
    return tuple(
        bytes(8) + data[header.position + 8 : header.next_position]
        for data in segments()
        for header in iter_batches(data)
        if header.size < 5000
    )


def fuzz_batches(view: memoryview, rng: random.Random) -> None:
    for call in (batch.read_header, batch.check):
        try:
            call(view, rng.choice((0, rng.randint(0, len(view)))))
        except CorruptBatch:
            pass
    for header in iter_batches(view, rng.randint(0, min(3, len(view)))):
        repr(header)


def fuzz_records(view: memoryview, rng: random.Random) -> None:
    header = batch.next_batch(view)
    if header is None:
        return
    for record in records_of(view, header, LIMIT):
        repr(record)
        if header.is_control:
            try:
                control.decode(record.key, record.value)
            except ValueError:
                pass
    find_timestamp(view, header, rng.choice((0, NOW, header.max_timestamp)), rng.choice((0, header.last_offset)), LIMIT)
    payload, base, _ = renumber(payload_of(view, header, LIMIT), header)
    again = batch.assemble(payload, count=header.count, base_timestamp=base)
    assert len(records_of(again, batch.check(again))) == header.count


def repaired(data: bytearray) -> bytearray:
    """Return the batch with the right length and checksum, so that the checks after these are reached."""
    if len(data) >= 61:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def make_produced(rng: random.Random, corpus: Sequence[bytes]) -> bytearray:
    """Return a damaged produced batch: without repair, with a right checksum, or damaged in its compressed payload."""
    data = rng.choice(corpus)
    how = rng.randrange(4)
    if how == 0:
        return mutate(rng, data, corpus)
    if how == 1:
        return repaired(mutate(rng, data, corpus, start=rng.choice((8, 61))))
    header = batch.read_header(data)
    payload = mutate(rng, bytes(payload_of(data, header)), corpus)
    codec = rng.randrange(5)
    count = rng.choice((header.count, header.count, header.count, header.count + 1, 2**31 - 1, 0))
    packed = compression.compress(codec, bytes(payload))
    if how == 3:
        packed = bytes(mutate(rng, packed, corpus))
    return bytearray(
        batch.assemble(
            packed,
            count=count,
            attributes=header.attributes & 0x18 | codec,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            base_sequence=header.base_sequence,
        )
    )


def fuzz_validation(view: memoryview, rng: random.Random) -> None:
    seen = validate(
        view,
        now_ms=NOW,
        timestamp_type=rng.choice((0, 0, 1)),
        before_max_ms=rng.choice((2**63 - 1, 10**9)),
        after_max_ms=rng.choice((2**63 - 1, 10**9)),
        compact=rng.random() < 0.2,
        target_codec=rng.choice((-1, -1, -1, 0, 1, 2, 3, 4)),
        max_message_bytes=rng.choice((-1, 10_000)),
        max_decompressed=LIMIT,
    )
    # An accepted input can be appended, read back and decoded, with the assigned offsets.
    assign(seen, 1000, 3)
    header = batch.check(seen.data)
    records = records_of(seen.data, header, LIMIT)
    assert [record.offset for record in records] == list(range(1000, 1000 + seen.count))
    assert header.last_offset == 999 + seen.count
    stamps = [record.timestamp for record in records]
    assert header.max_timestamp == seen.max_timestamp == max(-1, *stamps)


def fuzz_codec(codec: int) -> Target:
    texts = [b"", b"a", b"words " * 50, bytes(5000), random.Random(1).randbytes(700)]

    def run(view: memoryview, rng: random.Random) -> None:
        assert len(compression.decompress(codec, view, LIMIT)) <= LIMIT

    corpus = [compression.compress(codec, text) for text in texts]
    return Target(f"codec-{compression.NAMES[codec]}", corpus, run, (compression.DecompressionError,))


class Segment:
    """A file in memory, for the parsers that read files."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("fuzz")

    def __call__(self, view: memoryview, rng: random.Random) -> None:
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, view, 0)
        end = len(view)
        seen = segment_scan.scan(self.fd, 0, end, 0, rng.choice((0, 512, 4096)), rng.random() < 0.5)
        assert seen.valid_end <= end
        for call, wanted in ((segment_scan.locate, 5), (segment_scan.locate_timestamp, NOW)):
            try:
                call(self.fd, 0, end, wanted, *([0] if call is segment_scan.locate_timestamp else []))
            except segment_scan.CorruptSegment:
                pass
        segment_scan.floor_entry(self.fd, end // 8, 8, rng.randint(0, 10**6))
        segment_scan.ceiling_position(self.fd, end // 8, rng.randint(0, 10**6))


def fuzz_building(view: memoryview, rng: random.Random) -> None:
    """Any bytes can be written as keys, values and headers and are read back."""
    cuts = sorted(rng.randint(0, len(view)) for _ in range(3))
    key, value, content = view[: cuts[0]], view[cuts[0] : cuts[1]], view[cuts[1] : cuts[2]]
    builder = BatchBuilder(rng.randrange(5))
    for _ in range(rng.randint(1, 3)):
        builder.append(rng.randint(-1, 2**62), key, None if rng.random() < 0.2 else value, [("name", content)])
    data = builder.build()
    for record in records_of(data, batch.check(data)):
        assert record.key == key
        assert record.value in (None, value)
        assert record.headers == (("name", content),)


def targets() -> list[Target]:
    """Return all targets of this layer."""
    joined = [bytes(one + two) for one, two in zip(batches(), batches()[7:], strict=False)]
    seeds = [build([(NOW, b"key", b"value" * 3, [("name", b"text")])] * 4, codec=codec) for codec in range(5)]
    return [
        Target("batches", [*batches(), *joined], fuzz_batches, BROKEN),
        Target("records", [*batches(), *seeds], fuzz_records, BROKEN),
        Target("validation", [*batches(), *seeds], fuzz_validation, (RecordError,), make_produced),
        Target("building", batches(), fuzz_building, ()),
        Target("segment-scan", [*segments()[:20], *joined], Segment(), (segment_scan.CorruptSegment,)),
        *(fuzz_codec(codec) for codec in range(1, 5)),
    ]
