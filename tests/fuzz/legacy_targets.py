"""Fuzz targets of message formats 0 and 1: entries, message sets, validation for topics of every format, conversion."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kafkapy._ext import entries
from kafkapy._ext.batch import CorruptBatch
from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.entry_walk import any_older, entries_end, index_steps, whole_entries
from kafkapy._ext.message_writer import wrap
from kafkapy._ext.records import CorruptRecords
from kafkapy._ext.segment_scan import CorruptSegment
from kafkapy.errors import KafkaError
from kafkapy.record import compression
from kafkapy.record.batch import build, find_timestamp, records_of
from kafkapy.record.conversion import down_convert
from kafkapy.record.legacy import build_set, iter_entries
from kafkapy.record.validation import RecordError, assign, validate
from tests.fuzz.byte_targets import Segment
from tests.fuzz.mutation import mutate
from tests.fuzz.target import Target

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
LIMIT = 1 << 20
NOW = 1_600_000_000_000
BROKEN = (CorruptBatch, CorruptRecords, compression.DecompressionError)
SOME = [(NOW, b"key", b"value" * 3), (NOW + 9, None, b"words " * 9), (NOW, b"", None)]


@cache
def stored() -> tuple[bytes, ...]:
    """Return golden entries of formats 0 and 1, with a few single messages in each input, and some of format 2."""
    found = []
    for folder in ("kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-v0-v1"):
        for path in sorted((GOLDEN / folder / "data").glob("v*/*.log")):
            data = path.read_bytes()
            cuts = [*[header.position for header in iter_entries(data)][::3], len(data)]
            found += [data[a:b] for a, b in itertools.pairwise(cuts) if b - a < 5000]
    return tuple(found[::4])


@cache
def seeds() -> tuple[bytes, ...]:
    """Return message sets of every format and codec as producers send them."""
    old = [build_set(SOME * count, magic, codec) for magic in (0, 1) for codec in range(4) for count in (1, 5)]
    return (*old, *(build([(*record, ()) for record in SOME], codec=codec) for codec in range(5)))


def repaired(data: bytearray) -> bytearray:
    """Return the data with the right length and checksum for the first entry, as if it were the only one."""
    if len(data) > 26:
        struct.pack_into(">i", data, 8, len(data) - 12)
        if data[16] == 2:
            struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        else:
            struct.pack_into(">I", data, 12, zlib.crc32(memoryview(data)[16:]))
    return data


def repaired_all(data: bytearray) -> bytearray:
    """Return the set with the right checksum for each message, as far as the sizes can be followed."""
    at = 0
    while len(data) - at >= 26:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if not 26 <= size <= len(data) - at:
            break
        data[at + 12 : at + 16] = zlib.crc32(memoryview(data)[at + 16 : at + size]).to_bytes(4, "big")
        at += size
    return data


def make_entries(rng: random.Random, corpus: Sequence[bytes]) -> bytearray:
    """Return damaged entries: without repair, with right checksums, or inside a valid wrapper."""
    data = rng.choice(corpus)
    how = rng.randrange(4)
    if how == 0:
        return mutate(rng, data, corpus)
    if how == 1:
        return repaired(mutate(rng, data, corpus, start=rng.choice((8, 16, 18, 26))))
    magic, codec = rng.randrange(2), rng.randrange(1, 4)
    inner = build_set(SOME * rng.randint(1, 3), magic, base_offset=rng.choice((0, 0, 5)))
    if rng.random() < 0.7:
        inner = bytes(repaired_all(mutate(rng, inner, corpus)))
    packed = compression.compress(codec, inner, broken_checksum=magic == 0)
    if how == 3:
        packed = bytes(mutate(rng, packed, corpus))
    offset = rng.choice((0, 2, 5, 8, -1, 2**63 - 1))
    return bytearray(wrap(packed, magic, codec, offset, rng.choice((NOW, -1, -(2**63))), rng.randrange(2)))


def fuzz_entries(view: memoryview, rng: random.Random) -> None:
    for call in (entries.read_entry, entries.check_entry):
        try:
            call(view, rng.choice((0, rng.randint(0, len(view)))))
        except CorruptBatch:
            pass
    for header in iter_entries(view):
        repr(header)
        for record in records_of(view, header, LIMIT):
            repr(record)
        find_timestamp(
            view, header, rng.choice((0, NOW, header.max_timestamp)), rng.choice((0, header.last_offset)), LIMIT
        )


def fuzz_message_validation(view: memoryview, rng: random.Random) -> None:
    target = rng.randrange(3)
    batch = validate(
        view,
        now_ms=NOW,
        timestamp_type=rng.choice((0, 0, 1)),
        before_max_ms=rng.choice((2**63 - 1, 10**9)),
        compact=rng.random() < 0.2,
        target_codec=rng.choice((-1, -1, 0, 1, 2, 3)),
        max_message_bytes=rng.choice((-1, 10_000)),
        max_decompressed=LIMIT,
        target_magic=target,
        any_magic=True,
    )
    # An accepted input can be appended, read back and decoded, with the assigned offsets.
    assign(batch, 1000, 3)
    assert (batch.size, batch.magic) == (len(batch.data), target)
    offsets: list[int] = []
    largest = -1
    for header in iter_entries(batch.data):
        entries.check_entry(batch.data, header.position)
        offsets += [record.offset for record in records_of(batch.data, header, 2 * LIMIT)]
        largest = max(largest, header.max_timestamp)
    assert offsets == list(range(1000, 1000 + batch.count))
    assert largest == batch.max_timestamp


def fuzz_down_conversion(view: memoryview, rng: random.Random) -> None:
    magic = rng.randrange(2)
    converted = down_convert(view, magic, rng.choice((0, 2, 2**63 - 1)), max_decompressed=LIMIT)
    at = 0
    for header in iter_entries(converted):
        assert header.magic <= magic
        at = header.next_position
    assert at == len(converted)


def fuzz_walk(view: memoryview, rng: random.Random) -> None:
    for highest in (0, 1, 127):
        position, size, above = whole_entries(view, highest)
        assert 0 <= position <= len(view)
        assert size >= -1
        assert not above or 0 < size <= len(view) - position
    assert entries_end(view)[:2] == (position, size)
    any_older([view, view[:17]])
    steps = index_steps(view, rng.choice((0, 50, 4096)), rng.choice((0, 60)))
    assert sum(size for size, _, _, _ in steps) <= len(view)


def targets() -> list[Target]:
    """Return all targets of these formats."""
    corpus = [*stored(), *seeds()]
    return [
        Target("entries", corpus, fuzz_entries, BROKEN, make_entries),
        Target("message-validation", seeds(), fuzz_message_validation, (RecordError, KafkaError), make_entries),
        Target("down-conversion", corpus, fuzz_down_conversion, (KafkaError,), make_entries),
        Target("entry-walk", corpus, fuzz_walk, (ValueError,), make_entries),
        Target("old-segments", stored(), Segment(), (CorruptSegment,)),
    ]
