"""How fast an empty follower catches up, with the leader's log in the page cache.

The partitions have one replica on broker 1. Then broker 2 becomes their second replica, by AlterPartitionReassignments,
and copies all of it. Both brokers have done the same with a smaller topic before. The bare loop receives as many bytes
from a file in the page cache, computes their CRC-32C and writes them; its CPU time includes that of the sender.
"""

from __future__ import annotations

import os
import socket

from perf import frames
from perf.bare import CHUNK, bare_loop
from perf.clusters import Cluster, bytes_of, cluster
from perf.cpu import Usage, used
from perf.many import wait_for
from perf.measurement import BARE, GIB, Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import WINDOW
from perf.raw_client import RawClient

LEADER, FOLLOWER = 1, 2
SIZE = 1024
PARTITIONS = {"one": (1, "1 partition"), "many": (8, "8 partitions")}


class ReplicationCatchUp(Measurement):
    name = "replication_catch_up"
    quick = False
    about = "an empty second replica copies 4 GiB that are in the page cache; bare: receive + CRC + write"
    rows = tuple(
        row
        for key, (_, words) in PARTITIONS.items()
        for row in (
            Row(f"replication.catch_up.{key}", f"catch-up of an empty follower, {words}", "MB/s", "higher", Goal(1.5)),
            Row(
                f"replication.catch_up.{key}.bare",
                f"the same against the bare loop, {words}",
                "MB/s",
                "higher",
                Goal(0.6, BARE),
            ),
            Row(f"replication.catch_up.{key}.cpu", f"CPU of both brokers per GiB, {words}", "s", "lower", digits=2),
        )
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        for key, (partitions, _) in PARTITIONS.items():
            with cluster(bench, kind) as running:
                fill(running, "warm", bench.scale.warm, partitions)
                catch_up(running, "warm", partitions)
                size = fill(running, "full", 4 * bench.scale.stream, partitions)
                os.sync()  # writing back what was produced must not slow down the follower
                usage = catch_up(running, "full", partitions)
            rate = size / 1e6 / usage.wall
            found |= {f"replication.catch_up.{key}": rate, f"replication.catch_up.{key}.bare": rate}
            found[f"replication.catch_up.{key}.cpu"] = usage.cpu / (size / GIB)
        return found

    def limit(self, bench: Bench) -> Figures:
        size = 4 * bench.scale.stream
        with bench.data() as path, (path / "leader").open("w+b", buffering=0) as log:
            for _ in range(size // CHUNK):
                log.write(bytes(CHUNK))
            os.sync()
            with (
                bare_loop("follow", path / "bare") as (pid, port),
                socket.create_connection(("127.0.0.1", port)) as connection,
                used(pid, os.getpid()) as usage,
            ):
                position = 0
                while position < size:
                    position += os.sendfile(connection.fileno(), log.fileno(), position, size - position)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
        found: Figures = {}
        for key in (f"replication.catch_up.{name}" for name in PARTITIONS):
            rate = size / 1e6 / usage.wall
            found |= {key: rate, f"{key}.bare": rate, f"{key}.cpu": usage.cpu / (size / GIB)}
        return found


def fill(running: Cluster, topic: str, payload: int, partitions: int) -> int:
    """Create a topic whose partitions have one replica, on LEADER, and produce about `payload` bytes to them; return
    the size of their segments."""
    values = frames.plain_values(SIZE, frames.records_that_fill(SIZE))
    records = frames.batch(values)
    running.create_topic(topic, [[LEADER]] * partitions)
    count = max(WINDOW, payload // partitions // len(records))
    with RawClient(running.brokers[LEADER].port) as client:
        for partition in range(partitions):
            client.stream(frames.produce(topic, records, 1, partition), count, WINDOW)
    return sizes(running, LEADER, topic, partitions)


def catch_up(running: Cluster, topic: str, partitions: int) -> Usage:
    """Make FOLLOWER the second replica of the partitions, and wait until it has all bytes of LEADER; return the usage
    of both brokers until then. When this returns, the replicas are in sync."""
    replicas = [[LEADER, FOLLOWER]] * partitions
    size = sizes(running, LEADER, topic, partitions)
    with used(running.brokers[LEADER].pid, running.brokers[FOLLOWER].pid) as usage:
        running.add_replicas(topic, replicas)
        wait_for(lambda: sizes(running, FOLLOWER, topic, partitions) >= size, f"{topic} is not replicated")
    running.wait_in_sync(topic, replicas)
    return usage


def sizes(running: Cluster, number: int, topic: str, partitions: int) -> int:
    """Return the size of all segments of a topic on a broker."""
    return sum(bytes_of(running.log(number, topic, partition)) for partition in range(partitions))
