"""`python -m perf.soak --minutes 60`: runs mixed load on one broker for an hour and checks that nothing grows.

The load, none of it at full speed: producers of small and of large records into topics that roll every 16 MiB and
retain 128 MiB, a group of consumers that leave and rejoin, consumers that read from the beginning again and again, a
compacted topic, a topic that is created, filled and deleted. Every minute the broker's memory, descriptors, threads and
CPU time are recorded, and the latency of a producer that sends one record at a time.

The figures at the end: the slope of resident memory after the first ten minutes; the last ten minutes compared with
minutes 10 to 20, by the most descriptors (segments stay open until retention runs, every five minutes) and the median
p99; and the CPU time of the broker when it is idle. The exit code is 1 if one of them misses its goal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from perf import frames, network
from perf.brokers import Fleet
from perf.cpu import cpu_seconds, resident_bytes
from perf.machine import ROOT, describe
from perf.measurement import KAFKAPY, MIB
from perf.raw_client import RawClient
from perf.report import head
from perf.stats import percentile

SMALL, LARGE, COMPACTED, PACED = "soak-small", "soak-large", "soak-compacted", "soak-paced"
ROLLING = {"segment.bytes": str(16 * MIB), "retention.bytes": str(128 * MIB), "file.delete.delay.ms": "1000"}
COMPACTING = {"cleanup.policy": "compact", "segment.bytes": str(4 * MIB), "min.cleanable.dirty.ratio": "0.1"}
RATE = 100  # records per second of the producer whose latency is measured
SETTLED_MINUTES = 10
WINDOW_MINUTES = 10
IDLE_SECONDS = 20.0
GOALS = {"rss_mib_an_hour": 1.0, "descriptors": 1.05, "p99": 1.2, "idle_percent": 0.5}
MEANINGS = {
    "rss_mib_an_hour": "resident memory, slope after the first ten minutes, MiB per hour",
    "descriptors": "most descriptors, last ten minutes / minutes 10 to 20",
    "p99": "median p99 of acks, last ten minutes / minutes 10 to 20",
    "idle_percent": "CPU of the idle broker, % of a core",
}


@dataclass(frozen=True)
class Sample:
    """The figures of one minute."""

    minute: float
    rss_mib: float
    descriptors: int
    threads: int
    cpu_percent: float
    p50_ms: float
    p99_ms: float


class Load:
    """Workers, each in its own thread, until `stop`; a failure of one fails the soak."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=work.__name__, daemon=True)
            for work in (self._small, self._large, self._keyed, self._group, self._group, self._reread, self._topics)
        ]

    def start(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [
            NewTopic(SMALL, 4, 1, config=ROLLING),
            NewTopic(LARGE, 2, 1, config=ROLLING),
            NewTopic(COMPACTED, 1, 1, config=COMPACTING),
            NewTopic(PACED, 1, 1, config=ROLLING),
        ]
        for created in admin.create_topics(topics).values():
            created.result()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(f"{work.__name__[1:]}: {type(error).__name__}: {error}")

    def _produce(
        self, topic: str, size: int, together: int, pause_s: float, keys: int = 0, codec: str = "none"
    ) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "compression.type": codec, "enable.idempotence": True}
        producer = Producer(settings)
        value, numbers = os.urandom(size), count()
        while not self._stopping.wait(pause_s):
            for _ in range(together):
                key = b"%d" % (next(numbers) % keys) if keys else None
                producer.produce(topic, value, key)
            producer.flush()

    def _small(self) -> None:
        self._produce(SMALL, 100, 2000, 0.1)

    def _large(self) -> None:
        self._produce(LARGE, 100_000, 20, 0.5, codec="lz4")

    def _keyed(self) -> None:
        self._produce(COMPACTED, 500, 500, 0.5, keys=2000)

    def _group(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "soak", "auto.offset.reset": "latest"}
        while not self._stopping.is_set():
            consumer = Consumer(settings)
            consumer.subscribe([SMALL, LARGE])
            until = time.monotonic() + 45
            while time.monotonic() < until and not self._stopping.is_set():
                consumer.consume(5000, 0.5)
            consumer.close()

    def _reread(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        for number in count():
            consumer = Consumer({**settings, "group.id": f"reread-{number % 3}"})
            consumer.subscribe([LARGE, COMPACTED])
            until = time.monotonic() + 20
            while time.monotonic() < until:
                consumer.consume(500, 0.2)
                if self._stopping.wait(0.05):
                    consumer.close()
                    return
            consumer.close()

    def _topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for number in count():
            name = f"soak-passing-{number}"
            for created in admin.create_topics([NewTopic(name, 3, 1)]).values():
                created.result()
            producer = Producer({"bootstrap.servers": self.bootstrap})
            for _ in range(1000):
                producer.produce(name, b"x" * 1000)
            producer.flush()
            for gone in admin.delete_topics([name]).values():
                gone.result()
            if self._stopping.wait(5):
                return


def soak(minutes: int, directory: Path) -> tuple[list[Sample], dict[str, float], list[str]]:
    """Run the soak; return the samples, the figures that have GOALS, and the failures."""
    samples: list[Sample] = []
    fleet = Fleet(directory)
    with fleet.running(KAFKAPY, directory / "broker") as broker:
        load = Load(broker.bootstrap)
        load.start()
        frame = frames.produce(PACED, frames.batch(frames.plain_values(100, 1)), 1)
        began = time.monotonic()
        with RawClient(broker.port) as client:
            for minute in range(1, minutes + 1):
                cpu, since = cpu_seconds(broker.pid), time.monotonic()
                latencies, _ = client.paced(frame, RATE, began + 60 * minute - since)
                latencies.sort()
                spent = (cpu_seconds(broker.pid) - cpu) / (time.monotonic() - since)
                samples.append(_sample(broker.pid, (time.monotonic() - began) / 60, spent, latencies))
                _say(samples[-1])
        load.stop()
        time.sleep(5)  # until the connections of the load are closed and files deleted
        cpu = cpu_seconds(broker.pid)
        time.sleep(IDLE_SECONDS)
        idle = 100 * (cpu_seconds(broker.pid) - cpu) / IDLE_SECONDS
    fleet.close()
    settled = [one for one in samples if one.minute > min(SETTLED_MINUTES, minutes / 2)]
    begun, ended = settled[:WINDOW_MINUTES], settled[-WINDOW_MINUTES:]
    figures = {
        "rss_mib_an_hour": 60 * slope([one.minute for one in settled], [one.rss_mib for one in settled]),
        "descriptors": max(one.descriptors for one in ended) / max(one.descriptors for one in begun),
        "p99": median(one.p99_ms for one in ended) / median(one.p99_ms for one in begun),
        "idle_percent": idle,
    }
    return samples, figures, load.failures


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the least-squares line through the points."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def _sample(pid: int, minute: float, spent: float, latencies: Sequence[float]) -> Sample:
    return Sample(
        minute=round(minute, 2),
        rss_mib=resident_bytes(pid) / MIB,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=len(os.listdir(f"/proc/{pid}/task")),
        cpu_percent=100 * spent,
        p50_ms=percentile(latencies, 0.5) * 1e3,
        p99_ms=percentile(latencies, 0.99) * 1e3,
    )


def _say(one: Sample) -> None:
    print(
        f"minute {one.minute:5.1f}  {one.rss_mib:7.1f} MiB  {one.descriptors:4} descriptors  {one.threads:3} threads  "
        f"{one.cpu_percent:5.1f} % of a core  p50 {one.p50_ms:.2f} ms  p99 {one.p99_ms:.2f} ms",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser("python -m perf.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=60, help="duration (%(default)s)")
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), metavar="DIR", help="the broker's data directory (%(default)s)"
    )
    parser.add_argument("--congestion", metavar="NAME", help="TCP congestion control, as for python -m perf")
    default = ROOT / "perf" / "results" / time.strftime("soak-%Y-%m-%d-%H%M%S.json")
    parser.add_argument("--json", type=Path, default=default, metavar="FILE", help="the JSON file (%(default)s)")
    options = parser.parse_args()
    if options.congestion:
        network.enter_own(options.congestion)
    machine = describe(options.data)
    print(head(machine))
    with tempfile.TemporaryDirectory(prefix="kafkapy-soak-", dir=options.data) as directory:
        samples, figures, failures = soak(options.minutes, Path(directory))
    missed = [name for name, goal in GOALS.items() if figures[name] > goal]
    for name, figure in figures.items():
        verdict = "missed" if name in missed else "reached"
        print(f"{MEANINGS[name]:<76} {figure:8.2f}  goal at most {GOALS[name]:<4g}  {verdict}")
    for failure in failures:
        print(f"failed: {failure}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine, "figures": figures, "goals": GOALS, "failures": failures}
    options.json.write_text(json.dumps({**result, "samples": [asdict(one) for one in samples]}, indent=1) + "\n")
    return 1 if missed or failures else 0


if __name__ == "__main__":
    sys.exit(main())
