"""Fuzz target of the encoder: rows in Arrow's memory become batches."""

from __future__ import annotations

import random
import struct

from kafkapy._ext.batch import check, seal
from kafkapy._ext.row_batches import Rows, TopicBatches
from kafkapy.record.batch import records_of
from tests.fuzz.target import Target


def _piece(view: memoryview, rng: random.Random) -> bytes:
    """Return a piece in separate memory, so that a read behind its end is detected."""
    start = rng.randrange(len(view) + 1)
    return bytes(view[start : start + rng.choice((0, 1, 8, 40, 1000))])


def _offsets(view: memoryview, rng: random.Random, entries: int, width: int) -> bytes:
    """Return offsets: mostly valid ones, otherwise bytes of the input."""
    if rng.random() < 0.3:
        return _piece(view, rng)
    ends = sorted(rng.randrange(40) for _ in range(max(0, entries + 3)))
    if rng.random() < 0.2 and ends:
        ends[rng.randrange(len(ends))] = rng.choice((-1, 1 << 30, 0))
    return struct.pack(f"<{len(ends)}{'q' if width == 8 else 'i'}", *ends)


def _bytes(view: memoryview, rng: random.Random, count: int) -> tuple[bytes | None, bytes, bytes, int, int, int]:
    width = rng.choice((4, 4, 8))
    validity = _piece(view, rng) if rng.random() < 0.5 else None
    first = rng.choice((0, 0, 1, 2, -1))
    entries = count + rng.choice((0, 0, 0, 1, -1))
    return validity, _offsets(view, rng, entries, width), _piece(view, rng), first, entries, width


def _maybe(rng: random.Random) -> bool:
    return rng.random() < 0.6


def fuzz_rows(view: memoryview, rng: random.Random) -> None:
    """All rows are in the batches, or an error is raised; no memory outside of the buffers is read or written."""
    count = rng.choice((0, 1, 2, 7, 8, 9, -1, 1 << 62))
    few = min(count, 9)
    pairs = rng.randrange(9)
    headers = _maybe(rng)
    rows = Rows(
        count,
        _bytes(view, rng, few) if _maybe(rng) else None,
        _bytes(view, rng, few) if _maybe(rng) else None,
        _bytes(view, rng, few) if headers else None,
        _bytes(view, rng, pairs) if headers else None,
        _bytes(view, rng, pairs) if headers else None,
        (None, bytes(4 * few) if few > 0 and _maybe(rng) else _piece(view, rng), 0) if _maybe(rng) else None,
        (_piece(view, rng), _piece(view, rng), rng.choice((0, 1))) if _maybe(rng) else None,
        struct.pack(f"<{max(0, few)}Q", *(rng.randrange(max(1, few) + 1) for _ in range(few))) if _maybe(rng) else None,
    )
    batches = TopicBatches(rng.choice((1, 3)), rng.choice((0, 100, 10_000)))
    at = taken = 0
    while True:
        at = batches.append(rows, at, rows.count, 5)
        if batches.full < 0:
            break
        taken += _take(batches, batches.full)
    assert taken + sum(_take(batches, partition) for partition in batches.open_partitions()) == count


def _take(batches: TopicBatches, partition: int) -> int:
    data, count, _ = batches.take(partition)
    seal(data)
    assert len(records_of(data, check(data))) == count
    return count


def targets() -> list[Target]:
    return [Target("rows", [bytes(range(256)) * 4, b"key value text " * 20, bytes(300)], fuzz_rows, (ValueError,))]
