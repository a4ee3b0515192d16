"""Network threads and Python's switch interval: their effect on small requests and large fetches.

Only for kafkapy. A thread that waits for the GIL asks for it after the switch interval. So the interval bounds how long
a network thread waits for a thread that runs Python code, and how often they switch.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

from perf import frames
from perf.brokers import Broker, Kafkapy
from perf.closed_loop import closed_loop
from perf.cpu import used
from perf.fetch_load import fetch_load, places_in
from perf.measurement import KAFKAPY, MIB, Bench, Figures, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile

THREADS = (1, 2, 3)
INTERVALS_MS = (0.5, 5.0)
CONNECTIONS = 64
CONSUMERS = 8
BATCH = 64 * 1024
RATE = 500
SMALL, LARGE, BESIDE = "small", "large", "beside"


def key_of(threads: int, interval_ms: float, what: str) -> str:
    return f"threads.{threads}.{interval_ms:g}.{what}"


def _rows_of(threads: int, interval_ms: float) -> tuple[Row, ...]:
    who = f"{threads} network thread{'s' if threads > 1 else ''}, switch interval {interval_ms:g} ms"
    return (
        Row(key_of(threads, interval_ms, "rate"), f"one record per request, 64 connections, {who}", "/s", "higher"),
        Row(key_of(threads, interval_ms, "cpu"), f"broker CPU per request, {who}", "us", "lower", digits=1),
        Row(key_of(threads, interval_ms, "p99"), f"p99 of a request, {who}", "ms", "lower", digits=3),
        Row(key_of(threads, interval_ms, "fetched"), f"8 consumers of 1 MiB, {who}", "MB/s", "higher"),
        Row(key_of(threads, interval_ms, "beside"), f"p99 of produce at {RATE}/s at the same time, {who}", "ms",
            "lower", digits=3),
    )  # fmt: skip


class Threads(Measurement):
    name = "threads"
    quick = False
    about = "1, 2 and 3 network threads with a switch interval of 0.5 and 5 ms: small requests, large fetches (kafkapy)"
    rows = tuple(row for both in itertools.product(THREADS, INTERVALS_MS) for row in _rows_of(*both))

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        if kind != KAFKAPY:
            return found
        values = frames.plain_values(1000, frames.records_that_fill(1000, BATCH))
        records = frames.batch(values)
        with bench.data() as data:
            with bench.fleet.running(kind, data) as broker, RawClient(broker.port) as client:
                for topic in (SMALL, LARGE, BESIDE):
                    client.create_topic(topic)
                count = max(2 * MIB, bench.scale.stream // 4) // len(records)
                client.stream(frames.produce(LARGE, records, 1), count // 5 * 5, 5)
                batches = client.end_offset(LARGE) // len(values)
            log = len(records), len(values), batches
            for threads, interval_ms in itertools.product(THREADS, INTERVALS_MS):
                figures = _figures(bench, data, threads, interval_ms, log)
                found |= {key_of(threads, interval_ms, what): figure for what, figure in figures.items()}
        return found


def _figures(bench: Bench, data: Path, threads: int, interval_ms: float, log: tuple[int, int, int]) -> Figures:
    launch = ("perf.switch_interval", str(interval_ms / 1000))
    broker = Kafkapy(data, {"num.network.threads": str(threads)}, launch)
    try:
        with RawClient(broker.port) as client:
            for topic in (SMALL, LARGE, BESIDE):
                client.wait_for_topic(topic, create=False)
        return _small(bench, broker) | _large(bench, broker, *log)
    finally:
        broker.stop()


def _small(bench: Bench, broker: Broker) -> Figures:
    each = [frames.produce(SMALL, frames.batch(frames.plain_values(100, 1)), 1)] * CONNECTIONS
    count = max(4 * CONNECTIONS, bench.scale.requests // 4)
    with ExitStack() as ending:
        clients = [ending.enter_context(RawClient(broker.port)) for _ in each]
        closed_loop(clients, each, count // 4)
        with used(broker.pid) as usage:
            seconds, latencies = closed_loop(clients, each, count)
    p99 = percentile(sorted(latencies), 0.99) * 1e3
    return {"rate": count / seconds, "cpu": usage.cpu / count * 1e6, "p99": p99}


def _large(bench: Bench, broker: Broker, batch_bytes: int, batch_records: int, batches: int) -> Figures:
    """Measure large fetches. The consumers run in a process that prints no figures, so the bytes on loopback count."""
    frame = frames.produce(BESIDE, frames.batch(frames.plain_values(100, 1)), 1)
    an_answer = MIB // batch_bytes
    places = places_in(batches, an_answer)
    given = LARGE, MIB, an_answer, batch_records, places, CONSUMERS, broker.data / "threads.load"
    with RawClient(broker.port) as producer, fetch_load(broker.port, *given):
        producer.paced(frame, RATE, bench.scale.paced_seconds / 15)
        with used(broker.pid) as usage:
            before = _sent()
            latencies, _ = producer.paced(frame, RATE, bench.scale.paced_seconds / 4)
            sent = _sent() - before
    return {"fetched": sent / 1e6 / usage.wall, "beside": percentile(sorted(latencies), 0.99) * 1e3}


def _sent() -> int:
    """Return the bytes that loopback has carried, for all processes of the machine."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[8])
    return 0
