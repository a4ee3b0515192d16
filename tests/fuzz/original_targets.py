"""Fuzz targets of the original clients: records decoded one by one, responses of brokers of Kafka 0.7."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from kafkapy._ext.batch import CorruptBatch, read_header
from kafkapy._ext.lazy_records import LazyRecords
from kafkapy._ext.records import CorruptRecords
from kafkapy.client.original.kafka_07.simple_consumer import MessageSet07
from kafkapy.client.original.simple.messages import FetchRequest
from kafkapy.record.batch import payload_of, records_of
from kafkapy.record.conversion_07 import later_set
from kafkapy.record.kafka07 import CorruptMessage
from kafkapy.record.legacy import iter_entries, messages_of
from tests.fuzz.byte_targets import batches
from tests.fuzz.target import Target

GOLDEN_07 = Path(__file__).parent.parent / "data" / "golden" / "kafka-0.7.2" / "data"
CORRUPT = (CorruptBatch, CorruptRecords)
START = 1_000


@cache
def plain() -> tuple[bytes, ...]:
    """Return batches that are not compressed."""
    return tuple(data for data in batches() if read_header(data).codec == 0)


@cache
def segments_07() -> tuple[bytes, ...]:
    return tuple(path.read_bytes()[:3000] for path in sorted(GOLDEN_07.glob("*/*.kafka")))


def fuzz_lazy_records(view: memoryview, rng: random.Random) -> None:
    """Lazy decoding gives the same records and errors as decoding at once, however many records are requested."""
    header = read_header(view)
    if header.codec or not 0 < header.count <= len(view):
        return
    payload = payload_of(view, header)
    asked = rng.randrange(header.count + 2)
    first = []
    lazy = LazyRecords(payload, header)
    try:
        first += islice(lazy, asked)
    finally:
        refused: Exception | None = None
        try:
            at_once = [(one.offset, one.timestamp, one.key, one.value) for one in records_of(view, header)]
        except CORRUPT as error:
            refused = error
        else:
            assert first == at_once[: len(first)]
            assert len(first) == min(asked, header.count)
    rest = list(lazy)
    assert refused is None, f"{refused} was not seen"
    assert first + rest == at_once


def fuzz_fetched_07(view: memoryview, rng: random.Random) -> None:
    """Reading messages one by one and as messages of format 0 gives the same records."""
    messages = MessageSet07(FetchRequest("t", 0, START, len(view)), view)
    assert 0 <= messages.valid_bytes <= len(view)
    assert messages.next_offset == START + messages.valid_bytes
    converted, after = later_set(view, START)
    stored = [one for header in iter_entries(converted) for one in messages_of(converted, header)]  # type: ignore[arg-type]
    found = []
    try:
        for offset, message in messages:
            found.append((offset, message.value))
    except CorruptMessage:
        found = [(offset, value) for offset, value in found if offset < after]
    else:
        assert after == messages.next_offset
    assert found == [(one.offset, one.value) for one in stored]


def targets() -> Sequence[Target]:
    return [
        Target("lazy-records", plain(), fuzz_lazy_records, CORRUPT),
        Target("fetched-07", segments_07(), fuzz_fetched_07, (CorruptMessage,)),
    ]
