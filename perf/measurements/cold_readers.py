"""How much a consumer that reads from disk slows down a producer: acks at a fixed rate, idle and with such a reader.

The bare loop is two processes that share only the machine: one writes each small frame and sends an answer, the other
sends a file that is not in memory. No broker can avoid the latency of this producer.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from perf import frames
from perf.bare import ANSWER, CHUNK, bare_loop
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
            Row(f"{key}.beside.{share}", f"the same with a cold reader, {share}", "ms", "lower", digits=3),
            Row(
                f"{key}.times.{share}",
                f"with a cold reader / idle, {with_threads}, {share}",
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
    quick = False  # takes a hundred seconds with Apache Kafka
    about = f"produce to ack at {RATE}/s, idle and with a consumer that reads from disk; 1 and 3 network threads"
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
            log = str(broker.log_directory / f"{COLD}-0")
            words = [str(broker.port), log, COLD, str(len(records)), str(len(values))]
            return self._idle_and_beside(
                bench,
                key,
                lambda part: client.paced(frame, RATE, bench.scale.paced_seconds * part)[0],
                words,
                broker.data / "cold_reader.out",
            )

    def limit(self, bench: Bench) -> Figures:
        frame = frames.produce(HOT, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with bench.data() as path:
            cold = path / f"{COLD}.log"
            with cold.open("wb") as output:
                for _ in range(4 * bench.scale.stream // CHUNK):
                    output.write(bytes(CHUNK))
            with (
                bare_loop("append", path / HOT) as (_, port),
                bare_loop("sendfile", cold) as (_, cold_port),
                RawClient(port) as client,
            ):
                return self._idle_and_beside(
                    bench,
                    f"cold_readers.{THREADS[0]}",
                    lambda part: client.pace(frame, len(ANSWER), RATE, bench.scale.paced_seconds * part)[0],
                    [str(cold_port), str(path)],
                    path / "cold_reader.out",
                )

    def _idle_and_beside(
        self, bench: Bench, key: str, latencies: Callable[[float], list[float]], reader_words: list[str], output: Path
    ) -> Figures:
        """Measure without and with a cold reader. `latencies` runs the producer for a part of the usual time;
        `reader_words` are the arguments of perf.cold_reader, whose output goes to the file `output`."""
        latencies(0.25)  # warm
        idle = sorted(latencies(1))
        reader = Child([sys.executable, "-m", "perf.cold_reader", *reader_words], output)
        try:
            wait_until(lambda: "reading" in reader.output(), reader, "the cold reader")
            beside = sorted(latencies(1))
            wait_until(lambda: len(reader.output().splitlines()) > 1, reader, "the cold reader's first pass")
        finally:
            reader.stop()
        passes = [[float(word) for word in line.split()] for line in reader.output().splitlines()[1:]]
        kept = max(share for _, share in passes)
        bench.note(key, f"{key}: {len(passes)} passes of the cold reader, with at most {100 * kept:.1f} % in memory")
        found = {f"{key}.rate": statistics.median(rate for rate, _ in passes)}
        for share, part in SHARES.items():
            quiet, busy = percentile(idle, part) * 1e3, percentile(beside, part) * 1e3
            found |= {f"{key}.idle.{share}": quiet, f"{key}.beside.{share}": busy, f"{key}.times.{share}": busy / quiet}
        return found
