"""The time from the process start to the first acknowledged record, on an empty directory, and the memory then."""

from __future__ import annotations

import time

from perf import frames
from perf.cpu import resident_bytes
from perf.measurement import MIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient

TOPIC = "start"


class Start(Measurement):
    name = "start"
    kafka_4 = True
    about = "process start to first acknowledged record (which creates the topic), fresh resident memory"
    rows = (
        Row("start.seconds", "process start to first acknowledged record", "s", "lower", Goal(0.3, None), digits=3),
        Row("start.memory", "resident memory, fresh", "MiB", "lower", Goal(40, None), digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        frame = frames.produce(TOPIC, frames.batch(frames.plain_values(100, 1)), 1)
        with bench.broker(kind) as broker, RawClient(broker.port) as client:
            client.wait_for_topic(TOPIC, create=True)
            client.produce_once(frame, retry=True)
            seconds = time.perf_counter() - broker.began
            return {"start.seconds": seconds, "start.memory": resident_bytes(broker.pid) / MIB}
