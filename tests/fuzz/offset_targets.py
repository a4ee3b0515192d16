"""Fuzz target of the load of offsets: keys and values of `__consumer_offsets`, in valid batches."""

from __future__ import annotations

import random
from functools import cache

from kafkapy._ext.offset_replay import OffsetReplay
from kafkapy._ext.offset_table import OffsetTable
from kafkapy._ext.stored_records import DamagedBatch
from kafkapy.coordinator.offset_records import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from kafkapy.record.batch import BatchBuilder, records_of
from kafkapy.record.columns import decompress_records
from kafkapy.record.control import marker_batch
from tests.fuzz.byte_targets import segments
from tests.fuzz.target import Target
from tests.harness.batches import iter_batches


def joined(key: bytes, value: bytes | None) -> bytes:
    """Return a record as one input: the length of the key, the key, the value."""
    return len(key).to_bytes(2, "big") + key + (value or b"")


@cache
def records() -> tuple[bytes, ...]:
    """Return the records of golden files, and an offset commit of every version."""
    found = {
        joined(record.key, record.value)
        for data in segments()
        for header in iter_batches(data)
        for record in records_of(data, header)
        if record.key is not None and record.key[:1] == b"\0" and len(record.key) < 100
    }
    key = OFFSET_COMMIT_KEY.Message(group="group", topic="topic", partition=3)
    value = OFFSET_COMMIT_VALUE.Message(offset=5, metadata="metadata", commit_timestamp=7)
    for version in range(5):
        found.add(joined(OFFSET_COMMIT_KEY.encode(key, version % 2), OFFSET_COMMIT_VALUE.encode(value, version)))
    return tuple(sorted(found))


def fuzz_offset_records(view: memoryview, rng: random.Random) -> None:
    """Load two damaged copies of a record in a transaction and one outside, then a marker: the counts stay right."""
    split = 2 + int.from_bytes(view[:2], "big")
    key, value = bytes(view[2:split]), bytes(view[split:]) if rng.random() < 0.8 else None
    table, others = OffsetTable(), list[bytes]()
    replay = OffsetReplay(table, decompress_records, lambda key, value: others.append(key))
    for transactional in (True, False, True):
        builder = BatchBuilder(rng.choice((0, 1, 3)))
        builder.append(1, key, value)
        producer = {"producer_id": 5, "producer_epoch": 0, "transactional": True} if transactional else {}
        replay.feed(bytearray(builder.build(**producer)))  # type: ignore[arg-type]
    replay.feed(marker_batch(5, 0, commit=rng.random() < 0.5, coordinator_epoch=0, timestamp=1))
    assert table.staged() == []
    assert len(table) + (value is None) + (len(others) > 0) >= 1
    assert len(table) <= 1
    for group in table.groups():
        # A name that is not UTF-8 is shown with U+FFFD in it, so it cannot be looked up.
        assert len(table.of_group(group)) == 1 or "\ufffd" in group


def targets() -> list[Target]:
    return [Target("offset_records", records(), fuzz_offset_records, (DamagedBatch,))]
