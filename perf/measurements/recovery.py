"""The time of a start after an unclean stop: one segment must be checked batch by batch.

A broker fills a segment and is stopped cleanly; then the marks of the clean stop are deleted, as if it had been killed:
`.kafka_cleanshutdown` and the recovery point. Both brokers keep them in the same files. (After killing Apache Kafka,
the next start would wait for the old ZooKeeper session to expire.)
"""

from __future__ import annotations

import time
from pathlib import Path

from crc32c import crc32c

from perf import frames
from perf.measurement import GIB, MIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient

SIZE = 1024
TOPIC = "recovery"
SEGMENT = f"{TOPIC}-0/{0:020}.log"


class Recovery(Measurement):
    name = "recovery"
    kafka_4 = True
    about = "start on an unclean segment of 1 GiB in the page cache; bare: one CRC-32C of the same file"
    rows = (
        Row("recovery.load", "recovery of an unclean 1 GiB segment", "s", "lower", Goal(0.19, None), digits=3),
        Row(
            "recovery.listening",
            "process start to listening with that segment",
            "s",
            "lower",
            Goal(0.3, None),
            digits=3,
        ),
        Row("recovery.first_ack", "process start to first ack with that segment", "s", "lower", digits=3),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        values = frames.plain_values(SIZE, frames.records_that_fill(SIZE))
        frame = frames.produce(TOPIC, frames.batch(values), 1)
        with bench.data() as path:
            with bench.fleet.running(kind, path) as broker, RawClient(broker.port) as client:
                client.create_topic(TOPIC)
                client.stream(frame, bench.scale.segment // len(frame) - 3, 5)
            _, clean, _ = _start(bench, kind, path, frame)
            make_unclean(path / "logs")
            size = (path / "logs" / SEGMENT).stat().st_size
            listening, unclean, reported = _start(bench, kind, path, frame)
        source = "the broker's log" if reported is not None else "first ack unclean minus first ack clean"
        bench.note(
            f"recovery.{kind}", f"recovery of {kind}: from {source}, with a segment of {size:,} bytes, scaled to 1 GiB"
        )
        load = reported if reported is not None else max(0.0, unclean - clean)
        return {"recovery.load": load * GIB / size, "recovery.listening": listening, "recovery.first_ack": unclean}

    def limit(self, bench: Bench) -> Figures:
        buffer = bytearray(MIB)
        with bench.data() as path:
            file = path / "bare"
            with file.open("wb") as output:
                for _ in range(bench.scale.segment // MIB):
                    output.write(buffer)
            with file.open("rb", buffering=0) as opened:
                began = time.perf_counter()
                checksum = 0
                while opened.readinto(buffer):
                    checksum = crc32c(buffer, checksum)
                seconds = time.perf_counter() - began
        return {"recovery.load": seconds * GIB / (bench.scale.segment // MIB * MIB)}


def _start(bench: Bench, kind: str, path: Path, frame: bytes) -> tuple[float, float, float | None]:
    """Start the broker; return the seconds to listening and to the first ack, and the loading time in its log."""
    with bench.fleet.running(kind, path) as broker:
        listening = time.perf_counter() - broker.began
        with RawClient(broker.port) as client:
            client.wait_for_topic(TOPIC, create=False)
            client.produce_once(frame, retry=True)
            return listening, time.perf_counter() - broker.began, broker.recovery_seconds()


def make_unclean(logs: Path) -> None:
    """Delete the marks of a clean stop."""
    for mark in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (logs / mark).unlink()
