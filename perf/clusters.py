"""Starts a cluster: three brokers that hold replicas, and an Apache Kafka broker that is only the controller."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perf.brokers import HEAP, Broker
from perf.many import wait_for
from perf.measurement import KAFKA, Bench
from perf.raw_client import RawClient

IDS = (1, 2, 3)
CONTROLLER = 100
CONTROLLER_HEAP = "512M"


@dataclass(frozen=True)
class Cluster:
    """A running cluster. `brokers`: broker id -> broker, without the controller, which holds no replicas."""

    controller: Broker
    brokers: dict[int, Broker]

    @property
    def pids(self) -> list[int]:
        """The processes of the brokers that hold replicas."""
        return [broker.pid for broker in self.brokers.values()]

    def create_topic(self, topic: str, replicas: Sequence[Sequence[int]], **settings: str) -> None:
        """Create a topic with these replicas of each partition, the first of which leads; wait until the leaders serve
        and all replicas are in sync. `settings` have _ instead of . in their names."""
        with RawClient(self.controller.port) as client:
            client.create_assigned(topic, replicas, **settings)
        self.wait_in_sync(topic, replicas)

    def add_replicas(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Begin to move the partitions of a topic to these replicas."""
        with RawClient(self.controller.port) as client:
            client.reassign(topic, replicas)

    def wait_in_sync(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Wait until every leader knows all replicas of its partitions of the topic as in sync."""
        for number in {ids[0] for ids in replicas}:
            with RawClient(self.brokers[number].port) as client:
                wait_for(
                    lambda client=client: client.in_sync(topic) == [len(ids) for ids in replicas],
                    f"broker {number}: not all replicas of {topic} are in sync",
                )

    def check_in_sync(self, topic: str, replicas: int) -> None:
        """Raise RuntimeError unless the first partition of the topic has this many replicas in sync.

        A load is only comparable if no follower left the ISR meanwhile.
        """
        with RawClient(self.controller.port) as client:
            found = client.in_sync(topic)
        if found[0] != replicas:
            raise RuntimeError(f"{topic}: {found[0]} of {replicas} replicas are in sync after the load")

    def log(self, number: int, topic: str, partition: int = 0) -> Path:
        """Return the directory of a partition on a broker."""
        return self.brokers[number].log_directory / f"{topic}-{partition}"


@contextmanager
def cluster(bench: Bench, kind: str) -> Iterator[Cluster]:
    """Run a cluster whose three brokers are of this kind, on empty directories."""
    with bench.data() as path, ExitStack() as ending:
        connect = bench.fleet.zookeeper(path.name)

        def start(of: str, number: int, heap: str = HEAP) -> Broker:
            # Without a controlled shutdown: the last brokers would wait for others to take over their leadership.
            settings = {
                "broker.id": str(number),
                "zookeeper.connect": connect,
                "controlled.shutdown.enable": "false",
                "auto.leader.rebalance.enable": "false",
            }
            return ending.enter_context(bench.fleet.running(of, path / f"broker-{number}", settings, heap))

        controller = start(KAFKA, CONTROLLER, CONTROLLER_HEAP)  # the first broker of a cluster is elected
        brokers = {number: start(kind, number) for number in IDS}
        with RawClient(controller.port) as client:
            wait_for(lambda: client.brokers() == {CONTROLLER, *IDS}, "the controller does not know all brokers")
        yield Cluster(controller, brokers)


def bytes_of(log: Path) -> int:
    """Return the size of all segments of a partition; 0 if the directory does not exist yet."""
    try:
        with os.scandir(log) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    except FileNotFoundError:
        return 0
