"""Broker CPU for compressed batches, which the broker decompresses to check every record."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator

import lz4.frame
import snappy
import zstandard

from kafkapy._ext.allocator import keep_freed
from kafkapy.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from kafkapy.tools.start import KEPT
from perf import flights, frames
from perf.cpu import used
from perf.measurement import BARE, GIB, Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import create_and_warm, receive_and_write, stream

SIZE = 1024
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
BATCH_HEADER = 61


class Codecs(Measurement):
    name = "codecs"
    kafka_4 = True
    about = "broker CPU per GiB produced (before compression) with each codec; bare: decompression + receive + write"
    rows = tuple(
        row
        for name in CODECS
        for row in (
            Row(f"codecs.{name}.cpu", f"broker CPU per GiB produced, 1 KiB {name}", "s", "lower", Goal(1.2, BARE), 2),
            Row(f"codecs.{name}.ratio", f"compression ratio, {name}", "x", "higher", digits=1),
        )
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        values = frames.text_values(SIZE, frames.records_that_fill(SIZE))
        payload = bench.scale.stream // 2
        bench.note("codecs", f"codecs: {flights.source()}, {SIZE} B per record, batches of {len(values)} records")
        with bench.broker(kind) as broker:
            for name, codec in CODECS.items():
                records = frames.batch(values, codec)
                found[f"codecs.{name}.ratio"] = SIZE * len(values) / len(records)
                topic = f"codecs-{name}"
                create_and_warm(bench, broker, topic, SIZE, values, records)
                with used(broker.pid) as usage:
                    stream(broker, topic, SIZE, values, records, 1, payload)
                found[f"codecs.{name}.cpu"] = usage.cpu / (payload / GIB)
        return found

    def limit(self, bench: Bench) -> Figures:
        found: Figures = {}
        values = frames.text_values(SIZE, frames.records_that_fill(SIZE))
        count = max(5, bench.scale.stream // 2 // (SIZE * len(values)))
        gib = count * SIZE * len(values) / GIB
        for name, codec in CODECS.items():
            records = frames.batch(values, codec)
            _, moving = receive_and_write(bench, frames.produce("bare", records, 1), count)
            decompressing = _decompress_seconds(name, records[BATCH_HEADER:], count)
            found[f"codecs.{name}.cpu"] = (moving + decompressing) / gib
        return found


def _decompress_seconds(name: str, compressed: bytes, count: int) -> float:
    """Return the CPU seconds for decompressing the records of one batch `count` times with the codec's own library."""
    zstd = zstandard.ZstdDecompressor()
    run: Callable[[bytes], object] = {
        "gzip": lambda data: zlib.decompress(data, zlib.MAX_WBITS | 16),
        "snappy": lambda data: [snappy.decompress(block) for block in snappy_blocks(data)],
        "lz4": lz4.frame.decompress,
        "zstd": lambda data: zstd.decompressobj().decompress(data),
    }[name]
    keep_freed(KEPT)  # like the broker; otherwise only the loop would pay for freed and reused pages
    for _ in range(3):
        run(compressed)
    began = time.process_time()
    for _ in range(count):
        run(compressed)
    return time.process_time() - began


def snappy_blocks(framed: bytes) -> Iterator[bytes]:
    """Yield the blocks of snappy-java's framing: a header of 16 bytes, then each block after its length."""
    at = 16
    while at < len(framed):
        length = int.from_bytes(framed[at : at + 4], "big")
        yield framed[at + 4 : at + 4 + length]
        at += 4 + length
