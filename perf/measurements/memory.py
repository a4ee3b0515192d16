"""Resident memory of one broker after loads like those of the other measurements."""

from __future__ import annotations

from perf import frames
from perf.cpu import resident_bytes
from perf.measurement import MIB, Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import create_and_warm, stream
from perf.raw_client import RawClient


class Memory(Measurement):
    name = "memory"
    kafka_4 = True
    about = "resident memory after producing 1 KiB, 100 B, lz4 and zstd, reading it all, and small requests"
    rows = (Row("memory.loaded", "resident memory after load", "MiB", "lower", Goal(60, None), digits=1),)

    def run(self, bench: Bench, kind: str) -> Figures:
        loads = {
            "plain": (1024, frames.plain_values, 0),
            "small": (100, frames.plain_values, 0),
            "lz4": (1024, frames.text_values, 3),
            "zstd": (1024, frames.text_values, 4),
        }
        with bench.broker(kind) as broker:
            for topic, (size, make, codec) in loads.items():
                values = make(size, frames.records_that_fill(size))
                records = frames.batch(values, codec)
                create_and_warm(bench, broker, topic, size, values, records)
                stream(broker, topic, size, values, records, 1, bench.scale.client // 2)
                with RawClient(broker.port) as client:
                    client.fetch_all(frames.FetchFrame(topic), len(records), len(values), client.end_offset(topic))
            with RawClient(broker.port) as client:
                client.create_topic("requests")
                one = frames.produce("requests", frames.batch(frames.plain_values(100, 1)), 1)
                client.stream(one, bench.scale.requests // 2 // 10 * 10, 100, 10)
            return {"memory.loaded": resident_bytes(broker.pid) / MIB}
