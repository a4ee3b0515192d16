"""Fuzz targets of the C code that walks over all records: columns, JSON lines, statistics, transactions."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator, Sequence

from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.json_lines import json_lines
from kafkapy._ext.log_tally import LogTally
from kafkapy._ext.transactions import TransactionScan
from kafkapy.record import compression
from kafkapy.record.batch import build, records_of
from kafkapy.record.columns import COLUMNS, ColumnBuilder, DamagedBatch, decompress_records
from kafkapy.record.legacy import build_set, check, iter_entries
from tests.fuzz.byte_targets import BROKEN, LIMIT, batches
from tests.fuzz.mutation import mutate
from tests.fuzz.target import Target

PREFIX = b'{"offset":'
JSON = ("offset", "timestamp", "key", "value", "headers")


def unpacked(codec: int, data: memoryview, magic: int) -> Iterator[bytes]:
    return decompress_records(codec, data, magic, LIMIT)


def seeds() -> list[bytes]:
    """Return small batches and message sets of every codec and format."""
    headers = (("name", b"text"), ("ünï", None))
    found = [build([(9, b"key", b"value" * 3, headers), (8, None, None, ())] * 3, codec=codec) for codec in range(5)]
    for magic in (0, 1):
        found += [build_set([(7, b"key", b"value"), (6, None, None)] * 3, magic, codec) for codec in range(4)]
    return found


def sound(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return a damaged batch with the right length and checksum, so that the checks after these are reached."""
    data = mutate(rng, rng.choice(corpus), corpus, start=rng.choice((17, 18, 21, 57, 61)))
    if len(data) >= 61 and data[16] == 2:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    elif len(data) >= 26 and data[16] < 2:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 12, zlib.crc32(memoryview(data)[16:]))
    return bytes(data)


def packed(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return a valid batch or wrapper around a damaged payload."""
    codec = rng.randrange(5)
    if rng.random() < 0.5:
        inner = mutate(rng, build([(5, b"key", b"value", (("h", b"v"),))] * 4)[61:], corpus)
        head = bytearray(build([], codec=0)[:61])
        head[22] = codec
        struct.pack_into(">i", head, 57, rng.choice((4, 4, 4, 3, 0, 2**31 - 1, -1)))
        data = bytes(head) + compression.compress(codec, bytes(inner))
    else:
        magic, codec = rng.randrange(2), 1 + rng.randrange(3)
        inner = mutate(rng, build_set([(5, b"key", b"value")] * 4, rng.randrange(2), 0), corpus)
        value = compression.compress(codec, bytes(inner), broken_checksum=magic == 0)
        data = struct.pack(">qiIbb", rng.choice((0, 3, 100)), 0, 0, magic, codec) + (bytes(8) if magic else b"")
        data += struct.pack(">ii", -1, len(value)) + value
    return sound(rng, [data])


def make(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return a few of these, one after the other; sometimes damaged as a whole."""
    parts = [rng.choice((sound, packed, lambda r, c: r.choice(c)))(rng, corpus) for _ in range(rng.randint(1, 3))]
    data = b"".join(parts)
    return bytes(mutate(rng, data, corpus)) if rng.random() < 0.2 else data


def fuzz_columns(view: memoryview, rng: random.Random) -> None:
    """Columns give the same records as the decoder, whatever their bounds, up to the entry that both refuse."""
    checked = rng.random() < 0.7
    builder = ColumnBuilder(
        unpacked,
        JSON,
        max_rows=rng.choice((1, 3, 1000)),
        max_bytes=rng.choice((1, 100, 1 << 20)),
        skip_control=False,
        check_crc=checked,
    )
    lines = b""
    refused = None
    try:
        for columns in builder.feed(view):
            lines += json_lines(columns, PREFIX)
    except DamagedBatch as error:
        refused = error
    if rest := builder.finish():
        lines += json_lines(rest, PREFIX)
    wanted = []
    try:
        for header in iter_entries(view):
            if checked:
                check(view, header)
            wanted += [(record.offset, record.timestamp) for record in records_of(view, header, LIMIT)]
    except BROKEN:
        assert refused is not None
    else:
        assert refused is None
    found = [(line["offset"], line["timestamp"]) for line in map(json.loads, lines.splitlines())]
    # The decoder gives no record of a batch with a damaged record.
    assert found[: len(wanted)] == wanted
    assert refused is not None or len(found) == len(wanted)
    if refused is not None:
        raise refused


def fuzz_filters(view: memoryview, rng: random.Random) -> None:
    """Bounds and aborted transactions only leave records out."""
    aborted = [(rng.randrange(3), rng.randrange(10)) for _ in range(rng.randrange(3))]
    bounds = {name: rng.choice((None, 0, 3, 2**63 - 1)) for name in ("min_offset", "end_offset", "min_timestamp")}
    rows = []
    for more in ({"skip_control": False}, {"aborted": aborted, "skip_control": rng.random() < 0.5, **bounds}):
        builder = ColumnBuilder(unpacked, tuple(COLUMNS), check_crc=False, **more)
        rows.append(sum(columns.rows for columns in builder.feed(view)) + builder.rows)
    assert rows[1] <= rows[0]


def fuzz_tally(view: memoryview, rng: random.Random) -> None:
    tally = LogTally(unpacked, rng.choice((1, 1 << 16)), check_crc=rng.random() < 0.7)
    try:
        cut = rng.randint(0, len(view))
        taken = tally.feed(view[:cut])
        assert taken <= cut
        tally.feed(view, taken)
    finally:
        counts = tally.counts()
        assert counts["bytes"] <= len(view)
        assert counts["records"] >= counts["keyed_records"] + counts["keyless_records"]
        assert len(tally.moments()[1]) <= 1024
        assert tally.keys.kept()[0] <= counts["keyed_records"]
        tally.producers(), tally.gaps(), tally.codecs(), tally.formats(), tally.histograms(), tally.keys.largest()


def fuzz_transactions(view: memoryview, rng: random.Random) -> None:
    scan = TransactionScan(unpacked)
    assert scan.feed(view) <= len(view)
    assert all(first >= 0 for _, first, _ in scan.aborted())
    assert all(first >= 0 for first in scan.open().values())


def targets() -> list[Target]:
    """Return all targets of this layer."""
    corpus = [*batches(), *seeds()]
    return [
        Target("columns", corpus, fuzz_columns, (DamagedBatch,), make),
        Target("column-filters", corpus, fuzz_filters, (DamagedBatch,), make),
        Target("log-tally", corpus, fuzz_tally, (DamagedBatch,), make),
        Target("transactions", corpus, fuzz_transactions, (DamagedBatch,), make),
    ]
