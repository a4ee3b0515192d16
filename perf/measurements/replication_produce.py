"""Produce throughput with three replicas and acks=all, and the CPU of the three brokers per GiB produced.

One connection to the leader of one partition, with prebuilt requests of 1 MB, 5 in flight; the other two brokers
follow. With `spread` there are three partitions, each led by another broker, and a connection to each.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from kafkapy.record.compression import LZ4, ZSTD
from perf import frames
from perf.clusters import IDS, Cluster, cluster
from perf.cpu import Usage, used
from perf.measurement import GIB, Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import SIZES, WINDOW, stream
from perf.raw_client import RawClient

ONE_LEADER = [IDS]
SPREAD = [IDS, (2, 3, 1), (3, 1, 2)]
CODECS = {"lz4": LZ4, "zstd": ZSTD}
SIZE = 1024


class ReplicationProduce(Measurement):
    name = "replication_produce"
    quick = False
    about = "three replicas, acks=all: produce throughput and CPU of all three brokers, prebuilt requests of 1 MB"
    rows = (
        *(
            Row(f"replication.produce.{key}", f"produce {label}, 3 replicas, acks=all", "MB/s", "higher", Goal(1.2))
            for key, label, _ in SIZES.values()
        ),
        Row(
            "replication.produce.spread",
            "produce 1 KiB, acks=all, 3 partitions on 3 leaders",
            "MB/s",
            "higher",
            Goal(1.2),
        ),
        *(
            Row(f"replication.cpu.{key}", f"CPU of all 3 brokers per GiB, {label}", "s", "lower", Goal(0.5), 2)
            for key, label in {
                **{key: label for key, label, _ in SIZES.values()},
                "spread": "1 KiB, 3 leaders",
                **{codec: f"1 KiB {codec}" for codec in CODECS},
            }.items()
        ),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        payload = bench.scale.stream // 2
        with cluster(bench, kind) as running:
            for size, (key, _, _) in SIZES.items():
                values = frames.plain_values(size, frames.records_that_fill(size))
                usage, seconds = _one_leader(bench, running, f"produce-{key}", values, 0, payload)
                found[f"replication.produce.{key}"] = payload / 1e6 / seconds
                found[f"replication.cpu.{key}"] = usage.cpu / (payload / GIB)
            usage, sent = _three_leaders(bench, running, payload)
            found["replication.produce.spread"] = sent / 1e6 / usage.wall
            found["replication.cpu.spread"] = usage.cpu / (sent / GIB)
            texts = frames.text_values(SIZE, frames.records_that_fill(SIZE))
            for codec, number in CODECS.items():
                usage, _ = _one_leader(bench, running, f"produce-{codec}", texts, number, payload)
                found[f"replication.cpu.{codec}"] = usage.cpu / (payload / GIB)
        return found


def _one_leader(
    bench: Bench, running: Cluster, topic: str, values: list[bytes], codec: int, payload: int
) -> tuple[Usage, float]:
    """Produce about `payload` bytes of values to a new topic, after as much as a JVM needs to be warm; return the usage
    of all brokers, and the seconds for `payload`."""
    records = frames.batch(values, codec)
    size = len(values[0])
    leader = running.brokers[IDS[0]]
    running.create_topic(topic, ONE_LEADER, min_insync_replicas="2")
    stream(leader, topic, size, values, records, frames.ACKS_ALL, bench.scale.warm // 2)
    os.sync()  # writing back what was produced before must not slow down what is produced now
    with used(*running.pids) as usage:
        seconds = stream(leader, topic, size, values, records, frames.ACKS_ALL, payload)
    running.check_in_sync(topic, len(IDS))
    return usage, seconds


def _three_leaders(bench: Bench, running: Cluster, payload: int) -> tuple[Usage, int]:
    """Produce to three partitions at the same time; return the usage of all brokers, and the bytes of values."""
    topic = "produce-spread"
    values = frames.plain_values(SIZE, frames.records_that_fill(SIZE))
    records = frames.batch(values)
    running.create_topic(topic, SPREAD, min_insync_replicas="2")

    def produce(partition: int, count: int) -> None:
        with RawClient(running.brokers[SPREAD[partition][0]].port) as client:
            client.stream(frames.produce(topic, records, frames.ACKS_ALL, partition), count, WINDOW)

    def produce_all(count: int) -> None:
        with ThreadPoolExecutor(len(SPREAD)) as pool:
            list(pool.map(produce, range(len(SPREAD)), [count] * len(SPREAD)))

    def batches(total: int) -> int:
        return max(WINDOW, total // len(SPREAD) // (SIZE * len(values)))

    produce_all(batches(bench.scale.warm // 2))
    os.sync()
    with used(*running.pids) as usage:
        produce_all(batches(payload))
    for ids in SPREAD:
        with RawClient(running.brokers[ids[0]].port) as client:
            ends = client.in_sync(topic)
        if ends != [len(IDS)] * len(SPREAD):
            raise RuntimeError(f"{topic}: in-sync replicas after the load: {ends}")
    return usage, batches(payload) * len(SPREAD) * SIZE * len(values)
