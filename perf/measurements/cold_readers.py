"""What a consumer that reads from disk costs those who do not: acks at a fixed rate, idle and beside such a reader."""

from __future__ import annotations

import gc
import statistics
import sys

from perf import frames
from perf.brokers import Broker
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.processes import Child, wait_until
from perf.raw_client import RawClient
from perf.stats import percentile

RATE = 500
SIZE = 100
RECORD = 1024
BATCH = 64 * 1024
COLD = "cold"
HOT = "hot"
SHARES = {"p99": 0.99, "p99.9": 0.999}
THREADS = (1, 3)


def _rows(threads: int) -> tuple[Row, ...]:
    with_threads = f"{threads} network thread{'s' if threads > 1 else ''}"
    key = f"cold_readers.{threads}"
    rows = []
    for share in SHARES:
        rows += [
            Row(f"{key}.idle.{share}", f"ack at {RATE}/s, {with_threads}, idle, {share}", "ms", "lower", digits=3),
            Row(f"{key}.beside.{share}", f"the same beside a cold reader, {share}", "ms", "lower", digits=3),
            Row(
                f"{key}.times.{share}",
                f"beside a cold reader to idle, {with_threads}, {share}",
                "x",
                "lower",
                Goal(1.2, None),
                digits=2,
            ),
        ]
    rows.append(Row(f"{key}.rate", f"the cold reader, {with_threads}", "MB/s", "higher", Goal(1.0)))
    return tuple(rows)


class ColdReaders(Measurement):
    name = "cold_readers"
    quick = False  # a hundred seconds with Apache Kafka
    about = f"produce to ack at {RATE}/s, idle and beside a reader of what is not in memory; 1 and 3 network threads"
    rows = tuple(row for threads in THREADS for row in _rows(threads))

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.data() as data:
            for threads in THREADS:
                with bench.fleet.running(kind, data, {"num.network.threads": str(threads)}) as broker:
                    found |= self._with(bench, broker, f"cold_readers.{threads}", fill=threads == THREADS[0])
        return found

    def _with(self, bench: Bench, broker: Broker, key: str, *, fill: bool) -> Figures:
        values = frames.plain_values(RECORD, frames.records_that_fill(RECORD, BATCH))
        records = frames.batch(values)
        frame = frames.produce(HOT, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with RawClient(broker.port) as client:
            if fill:
                client.create_topic(COLD)
                client.create_topic(HOT)
                client.stream(frames.produce(COLD, records, 1), 4 * bench.scale.stream // len(records) // 5 * 5, 5)
            for topic in (COLD, HOT):
                client.wait_for_topic(topic, create=False)
            self._latencies(bench, client, frame, 0.25)  # warm
            idle = self._latencies(bench, client, frame)
            reader = _reader(broker, len(records), len(values))
            try:
                wait_until(lambda: "reading" in reader.said(), reader, "the cold reader")
                beside = self._latencies(bench, client, frame)
                wait_until(lambda: len(reader.said().splitlines()) > 1, reader, "the cold reader's first pass")
            finally:
                reader.stop()
        passes = [[float(word) for word in line.split()] for line in reader.said().splitlines()[1:]]
        kept = max(share for _, share in passes)
        bench.note(key, f"{key}: {len(passes)} passes of the cold reader, at most {100 * kept:.1f} % was in memory")
        found = {f"{key}.rate": statistics.median(rate for rate, _ in passes)}
        for share, part in SHARES.items():
            quiet, busy = percentile(idle, part) * 1e3, percentile(beside, part) * 1e3
            found |= {f"{key}.idle.{share}": quiet, f"{key}.beside.{share}": busy, f"{key}.times.{share}": busy / quiet}
        return found

    def _latencies(self, bench: Bench, client: RawClient, frame: bytes, part: float = 1.0) -> list[float]:
        gc.disable()  # the client's own pauses are no part of the broker's latency
        try:
            return sorted(client.paced(frame, RATE, bench.scale.paced_seconds * part)[0])
        finally:
            gc.enable()


def _reader(broker: Broker, batch_bytes: int, batch_records: int) -> Child:
    log = str(broker.log_directory / f"{COLD}-0")
    words = [str(broker.port), COLD, log, str(batch_bytes), str(batch_records)]
    return Child([sys.executable, "-m", "perf.cold_reader", *words], broker.data / "cold_reader.out")
