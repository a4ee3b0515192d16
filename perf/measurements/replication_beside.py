"""How much a follower that catches up from disk slows down a producer of the same leader.

Broker 1 leads a small topic with three replicas, to which a producer writes at a fixed rate. It also leads partitions
that no other broker has; they are dropped from the page cache, and broker 2 becomes their second replica.
"""

from __future__ import annotations

import time

from perf import frames
from perf.clusters import IDS, Cluster, cluster
from perf.cold_reader import drop
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.measurements.replication_catch_up import FOLLOWER, LEADER, fill, sizes
from perf.raw_client import RawClient
from perf.stats import percentile

RATE = 500
SIZE = 100
HOT, COLD = "hot", "cold"
PARTITIONS = 4
PART_SECONDS = 0.5  # latencies count in parts of this length, as long as the follower has not caught up
LONGEST = 120.0
SHARES = {"p50": 0.5, "p99": 0.99}


class ReplicationBeside(Measurement):
    name = "replication_beside"
    quick = False
    about = f"produce to ack at {RATE}/s, acks=1, idle and while a follower copies 4 GiB from the leader's disk"
    rows = (
        *(
            Row(
                f"replication.beside.{what}.{share}",
                f"ack at {RATE}/s, the leader {words}, {share}",
                "ms",
                "lower",
                None,
                3,
            )
            for what, words in {"idle": "is idle", "busy": "sends to a new follower"}.items()
            for share in SHARES
        ),
        Row("replication.beside.times", "with a follower catching up / idle, p99", "x", "lower", Goal(1.2, None), 2),
        Row("replication.beside.rate", "this follower, from disk", "MB/s", "higher", Goal(1.0)),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        frame = frames.produce(HOT, frames.batch(frames.plain_values(SIZE, 1)), 1)
        with cluster(bench, kind) as running, RawClient(running.brokers[LEADER].port) as client:
            running.create_topic(HOT, [IDS])
            size = fill(running, COLD, 4 * bench.scale.stream, PARTITIONS)
            kept = sum(drop(running.log(LEADER, COLD, partition)) for partition in range(PARTITIONS))
            bench.note(f"replication.beside.{kind}", f"before the catch-up {100 * kept / size:.1f} % were in memory")
            client.paced(frame, RATE, bench.scale.paced_seconds / 2)
            idle = sorted(client.paced(frame, RATE, bench.scale.paced_seconds)[0])
            busy, seconds = _while_it_catches_up(running, client, frame, size)
        found = {"replication.beside.rate": size / 1e6 / seconds}
        for what, latencies in {"idle": idle, "busy": sorted(busy)}.items():
            for share, part in SHARES.items():
                found[f"replication.beside.{what}.{share}"] = percentile(latencies, part) * 1e3
        times = found["replication.beside.busy.p99"] / found["replication.beside.idle.p99"]
        return found | {"replication.beside.times": times}


def _while_it_catches_up(running: Cluster, client: RawClient, frame: bytes, size: int) -> tuple[list[float], float]:
    """Let FOLLOWER copy the cold partitions; return the latencies of the producer until then, and the seconds."""
    latencies: list[float] = []
    running.add_replicas(COLD, [[LEADER, FOLLOWER]] * PARTITIONS)
    began = time.perf_counter()
    while True:
        some, _ = client.paced(frame, RATE, PART_SECONDS)
        seconds = time.perf_counter() - began
        done = sizes(running, FOLLOWER, COLD, PARTITIONS) >= size
        if not done or not latencies:
            latencies += some
        if done:
            return latencies, seconds
        if seconds > LONGEST:
            raise RuntimeError(f"the follower has not caught up after {seconds:.0f} s")
