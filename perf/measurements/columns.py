"""Records to Arrow columns and back on one core; and reading a topic as columns from each broker.

The figures in both directions are by the CPU time of this process, on batches of 16 KiB (the default of producers) in
memory, more of them than fit into a CPU cache. The bare loop computes one CRC-32C of the same batches and copies them
once: the least that a reader or a writer can do with their bytes. Reading is by wall time: the broker works on another
core.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from crc32c import crc32c

from kafkapy.client.cluster import Cluster
from kafkapy.record.batch import build
from perf import frames
from perf.measurement import KAFKAPY, MIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient

BATCH = 16_384
FETCH = 4 * MIB
POOL = 64 * MIB  # twice a large cache
CODECS = {"lz4": 3, "zstd": 4}
TOPIC = "columns"


class Columns(Measurement):
    name = "columns"
    about = "record batches to Arrow columns and back, rows per second on one core; bare: one CRC-32C and one copy"
    rows = (
        Row("columns.in.100b", "100 B records to 8 columns", "M rows/s", "higher", Goal(15, None), digits=1),
        Row("columns.in.100b.value", "100 B records to the value column", "M rows/s", "higher", digits=1),
        Row("columns.in.1k", "1 KiB records to 8 columns", "M rows/s", "higher", digits=1),
        Row("columns.in.100b.lz4", "100 B records, lz4, to 8 columns", "M rows/s", "higher", digits=1),
        Row("columns.in.100b.zstd", "100 B records, zstd, to 8 columns", "M rows/s", "higher", digits=1),
        Row("columns.out.100b", "100 B rows to batches", "M rows/s", "higher", Goal(10, None), digits=1),
        Row("columns.out.100b.key", "100 B rows with keys to batches, 8 partitions", "M rows/s", "higher", digits=1),
        Row("columns.out.1k", "1 KiB rows to batches", "M rows/s", "higher", digits=1),
        Row("columns.read.100b", "read 100 B records from a broker, 8 columns", "M rows/s", "higher", digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found = {"columns.read.100b": _read(bench, kind)}
        if kind != KAFKAPY:
            return found
        payload = bench.scale.stream
        found["columns.in.100b"] = _rows_in(100, 0, payload)
        found["columns.in.100b.value"] = _rows_in(100, 0, payload, ("value",))
        found["columns.in.1k"] = _rows_in(1024, 0, payload)
        for name, codec in CODECS.items():
            found[f"columns.in.100b.{name}"] = _rows_in(100, codec, payload // 4)
        found["columns.out.100b"] = _rows_out(100, payload)
        found["columns.out.100b.key"] = _rows_out(100, payload, partitions=8)
        found["columns.out.1k"] = _rows_out(1024, payload)
        return found

    def limit(self, bench: Bench) -> Figures:
        found: Figures = {}
        for name, size in (("100b", 100), ("1k", 1024)):
            speed = _bare(size, bench.scale.stream)
            found |= {f"columns.in.{name}": speed, f"columns.out.{name}": speed}
        return found


@cache
def _fetches(size: int, codec: int, pool: int) -> tuple[list[bytes], int]:
    """Return about `pool` bytes of records in the form of Fetch responses, and the number of records."""
    values = frames.text_values(size, frames.records_that_fill(size, BATCH))
    batches: list[bytes] = []
    fetches: list[bytes] = []
    records = 0
    while records == 0 or records * size < pool:
        made = [(1_700_000_000_000 + n, None, value, ()) for n, value in enumerate(values)]
        batches.append(build(made, codec=codec, base_offset=records))
        records += len(values)
        if sum(map(len, batches)) >= FETCH:
            fetches.append(b"".join(batches))
            batches.clear()
    return [*fetches, *([b"".join(batches)] if batches else [])], records


def _again_and_again(fetches: Sequence[bytes], times: int) -> Iterator[bytes]:
    for _ in range(times):
        yield from fetches


def _rows_in(size: int, codec: int, payload: int, columns: Sequence[str] | None = None) -> float:
    """Convert batches to columns; return million rows per second."""
    from kafkapy.arrow.rows import RowBuilder

    fetches, records = _fetches(size, codec, min(POOL, payload))
    times = max(1, payload // (records * size))
    rows = RowBuilder("topic", 0, columns=columns)
    for fetch in fetches:
        _drain(rows.feed(fetch))
    rows.finish()
    began = time.process_time()
    for fetch in _again_and_again(fetches, times):
        _drain(rows.feed(fetch))
    rows.finish()
    return times * records / 1e6 / (time.process_time() - began)


def _rows_out(size: int, payload: int, partitions: int = 1) -> float:
    """Convert rows to batches; return million rows per second. With several partitions the rows have keys."""
    import pyarrow as pa

    from kafkapy.arrow.encode import RowEncoder
    from kafkapy.arrow.rows import MAX_ROWS

    count = min(MAX_ROWS, max(1, payload // size))
    columns = {"value": pa.array(frames.text_values(size, count), pa.binary())}
    if partitions > 1:
        columns["key"] = pa.array([b"key-%08d" % number for number in range(count)], pa.binary())
    rows = pa.RecordBatch.from_pydict(columns)
    times = max(1, payload // (count * size))
    encoder = RowEncoder(lambda _: partitions, topic="topic")
    began = time.process_time()
    for _ in range(times):
        for batch in encoder.feed(rows):
            batch.build()
    for batch in encoder.finish():
        batch.build()
    return times * count / 1e6 / (time.process_time() - began)


def _bare(size: int, payload: int) -> float:
    fetches, records = _fetches(size, 0, min(POOL, payload))
    times = max(1, payload // (records * size))
    began = time.process_time()
    for fetch in _again_and_again(fetches, times):
        for at in range(0, len(fetch), BATCH):
            crc32c(fetch[at : at + BATCH])  # a slice of bytes is a copy
    return times * records / 1e6 / (time.process_time() - began)


def _read(bench: Bench, kind: str) -> float:
    from kafkapy.arrow.partition_reader import read_partition

    values = frames.text_values(100, frames.records_that_fill(100, BATCH))
    records = frames.batch(values)
    with bench.broker(kind) as broker:
        with RawClient(broker.port) as client:
            client.create_topic(TOPIC)
            count = max(1, bench.scale.stream // 2 // (100 * len(values)))
            client.stream(frames.produce(TOPIC, records, 1), count, 5)
            end = client.end_offset(TOPIC)
        with Cluster(broker.bootstrap) as cluster:
            for first in (end // 4 * 3, 0):  # the first time warms up
                began = time.perf_counter()
                _drain(read_partition(cluster, TOPIC, 0, first, end, include_headers=True))
                seconds = time.perf_counter() - began
    return end / 1e6 / seconds


def _drain(batches: Iterable[object]) -> None:
    for _ in batches:
        pass
