"""CPU of idle brokers of which one leads thousands of partitions and another follows them."""

from __future__ import annotations

import os
import time

from perf.clusters import Cluster, cluster
from perf.cpu import used
from perf.many import wait_for
from perf.measurement import Bench, Figures, Goal, Measurement, Row

LEADER, FOLLOWER = 1, 2
MOST_A_TOPIC = 500


class ReplicationIdle(Measurement):
    name = "replication_idle"
    quick = False
    about = "CPU of an idle broker that follows 10,000 partitions, and of the broker that leads them"
    rows = (
        Row("replication.idle.follower", "idle, all partitions followed, CPU", "% of a core", "lower", Goal(0.5), 2),
        Row("replication.idle.leader", "idle, all partitions led, CPU", "% of a core", "lower", Goal(0.5), 2),
        Row("replication.idle.create", "creation of all partitions, CPU of both", "s", "lower", digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        size = bench.scale.most
        with cluster(bench, kind) as running:
            leader, follower = running.brokers[LEADER], running.brokers[FOLLOWER]
            with used(leader.pid, follower.pid) as creation:
                for at in range(0, size, MOST_A_TOPIC):
                    running.create_topic(f"many-{at}", [[LEADER, FOLLOWER]] * min(MOST_A_TOPIC, size - at))
                wait_for(lambda: _directories(running, FOLLOWER) == size, "not all partitions are followed", 0.1)
            time.sleep(bench.scale.paced_seconds)  # background work after the creation must not count
            with used(leader.pid) as leading, used(follower.pid) as following:
                time.sleep(2 * bench.scale.paced_seconds)
        return {
            "replication.idle.follower": 100 * following.cpu / following.wall,
            "replication.idle.leader": 100 * leading.cpu / leading.wall,
            "replication.idle.create": creation.cpu,
        }


def _directories(running: Cluster, number: int) -> int:
    return sum(name.startswith("many-") for name in os.listdir(running.brokers[number].log_directory))
