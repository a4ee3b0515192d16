"""Partitions move to other brokers, without and with a throttle.

Each of the three brokers leads partitions that no other broker has, and all of them move to the next broker at the same
time, so that every broker sends and receives. The time is from the request until no partition is being moved. With the
throttle, `bytes of a broker / time` should be the limit; the figure is the difference to it.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from perf import frames
from perf.admin import BROKER, TOPIC, configure, wait_for_reassignments
from perf.clusters import bytes_of
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import WINDOW
from perf.one_kind import IDS, Cluster, cluster

SIZE = 1024
PARTITIONS = 12
THROTTLED_PARTS = 3  # of the eight parts of the whole that are moved with the throttle


class ControllerReassign(Measurement):
    name = "controller_reassign"
    quick = False
    about = "4 GiB move from each of three brokers to the next, with and without a throttle"
    rows = (
        Row("controller.reassign", "4 GiB move over three brokers", "MB/s", "higher", Goal(1.3)),
        Row("controller.reassign.error", "with a throttle: difference to the limit", "%", "lower", Goal(10, None), 1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        whole = 4 * bench.scale.stream
        with cluster(bench, kind) as running:
            _fill(running, "warm", bench.scale.warm)
            _move(running, "warm")
            size = _fill(running, "whole", whole)
            os.sync()  # writing back what was produced must not slow down the moves
            rate = size / _move(running, "whole")
            size = _fill(running, "throttled", whole // 8 * THROTTLED_PARTS)
            os.sync()
            limit = size / len(IDS) / (2 * bench.scale.paced_seconds)
            _throttle(running, "throttled", int(limit))
            throttled = size / len(IDS) / _move(running, "throttled")
        return {
            "controller.reassign": rate / 1e6,
            "controller.reassign.error": 100 * abs(throttled / limit - 1),
        }


def _fill(running: Cluster, topic: str, payload: int) -> int:
    """Create a topic whose partitions have one replica, and produce about `payload` bytes to all of them together;
    return the size of their segments."""
    values = frames.plain_values(SIZE, frames.records_that_fill(SIZE))
    records = frames.batch(values)
    count = max(WINDOW, payload // PARTITIONS // len(records))
    running.create_topic(topic, [[number] for number in _leaders()])

    def produce(partition: int, leader: int) -> None:
        with running.client(leader) as client:
            client.stream(frames.produce(topic, records, 1, partition), count, WINDOW)

    with ThreadPoolExecutor(len(IDS)) as pool:
        list(pool.map(produce, range(PARTITIONS), _leaders()))
    return sum(
        bytes_of(running.brokers[leader].log_directory / f"{topic}-{partition}")
        for partition, leader in enumerate(_leaders())
    )


def _leaders(shift: int = 0) -> list[int]:
    """Return the leader of each partition, after all have moved to the next broker `shift` times."""
    return [IDS[(partition + shift) % len(IDS)] for partition in range(PARTITIONS)]


def _move(running: Cluster, topic: str) -> float:
    """Move all partitions of a topic to the next broker; return the seconds."""
    with running.client(running.controller()) as client:
        began = time.perf_counter()
        client.reassign(topic, [[number] for number in _leaders(1)])
        wait_for_reassignments(client)
        return time.perf_counter() - began


def _throttle(running: Cluster, topic: str, limit: int) -> None:
    """Limit what each broker sends and fetches of the topic, in bytes per second."""
    sides = ("leader", "follower")
    for number in running.brokers:
        with running.client(number) as client:
            configure(client, BROKER, str(number), {f"{side}.replication.throttled.rate": str(limit) for side in sides})
    with running.client(running.controller()) as client:
        configure(client, TOPIC, topic, {f"{side}.replication.throttled.replicas": "*" for side in sides})
