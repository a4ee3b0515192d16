"""Acks that wait for an fsync: flush.messages=1, one record per request, one request in flight per producer.

Apache Kafka syncs each append separately, under the lock of the partition's log; kafkapy syncs once for all waiting
producers. The bare loop appends the same batch to a file and syncs it, again and again: the limit of the disk for one
producer, but not for several, because they can share an fsync.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from perf import frames, shares
from perf.closed_loop import closed_loop
from perf.cpu import used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused
from perf.stats import percentile

SIZE = 100
PRODUCERS = {1: Goal(1.0), 16: Goal(2.0), 64: Goal(3.0)}
SPREAD = 16  # producers, each with its own partition
TOPIC = "group-commit"


class GroupCommit(Measurement):
    name = "group_commit"
    kafka_4 = True
    about = "acks that wait for an fsync (flush.messages=1): 1, 16, 64 producers to one partition, 16 to one each"
    rows = (
        *(
            row
            for count, goal in PRODUCERS.items()
            for row in (
                Row(
                    f"group_commit.{count}.rate",
                    f"fsynced acks, producers: {count}",
                    "acks/s",
                    "higher",
                    goal,
                    client=f"group_commit.{count}.busiest",
                ),
                shares.busiest(f"group_commit.{count}", f"fsynced acks, producers: {count}"),
                Row(
                    f"group_commit.{count}.p50", f"the same, latency, p50, producers: {count}", "ms", "lower", digits=2
                ),
                Row(
                    f"group_commit.{count}.p99", f"the same, latency, p99, producers: {count}", "ms", "lower", digits=2
                ),
            )
        ),
        Row("group_commit.spread.rate", f"fsynced acks, {SPREAD} partitions, one producer each", "acks/s", "higher"),
        Row("group_commit.cpu", "broker CPU per 100,000 fsynced acks, producers: 64", "s", "lower", digits=2),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind) as broker, RawClient(broker.port) as first:
            record = frames.batch(frames.plain_values(SIZE, 1))
            for count in PRODUCERS:
                topic = f"{TOPIC}-{count}"
                first.create_topic(topic, flush_messages="1")
                frame = frames.produce(topic, record, -1)
                with used(broker.pid) as usage, shares.this_thread() as thread:
                    seconds, latencies, total = _load(bench, broker.port, [frame] * count)
                if first.end_offset(topic) != total:
                    raise Refused(f"{topic} ends at {first.end_offset(topic)}, not at {total}")
                latencies.sort()
                found[f"group_commit.{count}.rate"] = len(latencies) / seconds
                found[f"group_commit.{count}.busiest"] = thread.percent
                found[f"group_commit.{count}.p50"] = percentile(latencies, 0.5) * 1e3
                found[f"group_commit.{count}.p99"] = percentile(latencies, 0.99) * 1e3
                found["group_commit.cpu"] = usage.cpu * 100_000 / total
            first.create_topic(TOPIC, SPREAD, flush_messages="1")
            each = [frames.produce(TOPIC, record, -1, partition) for partition in range(SPREAD)]
            seconds, latencies, _ = _load(bench, broker.port, each)
            found["group_commit.spread.rate"] = len(latencies) / seconds
        return found

    def limit(self, bench: Bench) -> Figures:
        record = frames.batch(frames.plain_values(SIZE, 1))
        count = bench.scale.requests // 40
        with bench.data() as path:
            fd = os.open(path / "bare", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                latencies = []
                for number in range(count):
                    began = time.perf_counter()
                    os.pwrite(fd, record, number * len(record))
                    os.fsync(fd)
                    latencies.append(time.perf_counter() - began)
            finally:
                os.close(fd)
        latencies.sort()
        bench.note(
            "group_commit", f"group_commit: a bare write and fsync takes {percentile(latencies, 0.5) * 1e6:.0f} µs"
        )
        return {
            "group_commit.1.rate": count / sum(latencies),
            "group_commit.1.p50": percentile(latencies, 0.5) * 1e3,
            "group_commit.1.p99": percentile(latencies, 0.99) * 1e3,
        }


def _load(bench: Bench, port: int, each: list[bytes]) -> tuple[float, list[float], int]:
    """Run one producer per frame; return seconds, latencies, and the number of records produced in all."""
    count = bench.scale.requests // (10 if len(each) > 1 else 40)
    warm = count // 4
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in each]
        closed_loop(clients, each, max(warm, len(each)))
        seconds, latencies = closed_loop(clients, each, max(count, len(each)))
    return seconds, latencies, max(warm, len(each)) + max(count, len(each)) + 2 * len(each)
