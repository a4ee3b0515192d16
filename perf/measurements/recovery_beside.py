"""The latency of a producer to one partition while other partitions recover.

Apache Kafka serves no requests before everything is recovered, so only kafkapy is measured, with and without recovery.
The recovering partitions are hard links to one segment of 1 GiB, which stays in the page cache: the checksums, and so
the contention for CPUs and the GIL, are the same as with different segments.
"""

from __future__ import annotations

import os
from pathlib import Path

from perf import frames
from perf.brokers import Broker
from perf.measurement import GIB, KAFKAPY, MIB, Bench, Figures, Measurement, Row
from perf.measurements.recovery import make_unclean
from perf.raw_client import RawClient
from perf.stats import percentile

RATE = 500
SIZE = 100
BULK = "bulk"
SERVED = "served"
RECORD = 1024
SECONDS_A_GIB = 0.12  # no recovery is faster
SHARES = {"p50": 0.5, "p99": 0.99}


class RecoveryBeside(Measurement):
    name = "recovery_beside"
    about = f"produce to ack at {RATE:,}/s on a recovered partition, while others recover and afterwards"
    quick = False
    rows = tuple(
        Row(f"recovery_beside.{when}.{share}", f"ack at {RATE}/s, {what}, {share}", "ms", "lower", digits=3)
        for when, what in (("during", "other partitions recover"), ("after", "no recovery"))
        for share in SHARES
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        if kind != KAFKAPY:
            return {}
        seconds = bench.scale.paced_seconds / 4
        size = bench.scale.segment
        copies = min(int(seconds * 2 / (SECONDS_A_GIB * size / GIB)) + 2, size // (4 * MIB) + 4)
        frame = frames.produce(SERVED, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with bench.data() as path:
            with bench.fleet.running(kind, path) as broker:
                self._fill(bench, broker, copies)
            _multiply(path / "logs", copies)
            make_unclean(path / "logs")
            with bench.fleet.running(kind, path) as broker, RawClient(broker.port) as client:
                client.wait_for_topic(SERVED, create=False)
                during = sorted(client.paced(frame, RATE, seconds)[0])
                left = client.without_leader(BULK)
                client.wait_for_topic(BULK, create=False)
                after = sorted(client.paced(frame, RATE, seconds)[0])
        bench.note(
            "recovery_beside", f"recovery_beside: {left} of {copies} partitions were not yet recovered at the end"
        )
        return {
            f"recovery_beside.{when}.{share}": percentile(latencies, part) * 1e3
            for when, latencies in (("during", during), ("after", after))
            for share, part in SHARES.items()
        }

    def _fill(self, bench: Bench, broker: Broker, copies: int) -> None:
        values = frames.plain_values(RECORD, frames.records_that_fill(RECORD))
        frame = frames.produce(BULK, frames.batch(values), 1)
        with RawClient(broker.port) as client:
            client.create_topic(SERVED)
            client.create_topic(BULK, copies)
            client.stream(frame, bench.scale.segment // len(frame) - 3, 5)


def _multiply(logs: Path, copies: int) -> None:
    segment = logs / f"{BULK}-0" / f"{0:020}.log"
    for partition in range(1, copies):
        empty = logs / f"{BULK}-{partition}" / segment.name
        empty.unlink()
        os.link(segment, empty)
