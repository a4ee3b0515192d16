"""Clusters of one kind: all brokers are Apache Kafka or all are kafkapy, and one of them is the controller.

Brokers can be killed, stopped and started again. When the block of `cluster` ends, they are killed.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kafkapy.protocol.apis import METADATA
from kafkapy.protocol.headers import request_frame
from perf import frames
from perf.admin import elect_preferred_leaders
from perf.brokers import Broker
from perf.many import wait_for
from perf.measurement import Bench
from perf.raw_client import METADATA_VERSION, TIMEOUT, RawClient

IDS = (1, 2, 3)
SESSION_MS = 6000  # short, because many measurements wait for its end; that time is in no figure
POLL_S = 0.005
SETTINGS = {"zookeeper.session.timeout.ms": str(SESSION_MS), "auto.leader.rebalance.enable": "false"}


class Cluster:
    """A running cluster. `brokers`: broker id -> broker, of those that run; `tree`: a client of its ZooKeeper."""

    def __init__(self, bench: Bench, kind: str, directory: Path, connect: str, settings: Mapping[str, str]) -> None:
        from kazoo.client import KazooClient

        self.brokers: dict[int, Broker] = {}
        self.tree: Any = KazooClient(connect)
        self._bench = bench
        self._kind = kind
        self._directory = directory
        self._settings = {**SETTINGS, "zookeeper.connect": connect, **settings}
        self._ending = ExitStack()

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers.values()]

    def start(self, *numbers: int) -> None:
        """Start brokers, one after the other, and wait until every broker knows all others."""
        for number in numbers:
            settings = {**self._settings, "broker.id": str(number)}
            running = self._bench.fleet.running(self._kind, self._directory / f"broker-{number}", settings)
            self.brokers[number] = self._ending.enter_context(running)
        for number in self.brokers:
            with self.client(number) as client:
                wait_for(
                    lambda client=client: client.brokers() == set(self.brokers),
                    f"broker {number} does not know all brokers",
                )

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL. Its session in ZooKeeper ends later."""
        self.brokers.pop(number).child.kill()

    def stop(self, number: int) -> None:
        """Stop a broker with SIGTERM, which includes a controlled shutdown; return when the process has ended."""
        self.brokers.pop(number).child.stop(TIMEOUT)

    def close(self) -> None:
        for broker in self.brokers.values():  # a clean stop of the last brokers would wait for the others
            broker.child.kill()
        self._ending.close()
        self.tree.stop()
        self.tree.close()

    def client(self, number: int) -> RawClient:
        """Return a new connection to a broker."""
        return RawClient(self.brokers[number].port)

    def controller(self) -> int:
        """Return the id of the controller, as ZooKeeper has it. Raises kazoo's NoNodeError if there is none."""
        return int(json.loads(self.tree.get("/controller")[0])["brokerid"])

    def create_topic(self, topic: str, replicas: Sequence[Sequence[int]], **settings: str) -> None:
        """Create a topic with these replicas of each partition, the first of which leads, and wait until all are in
        sync. `settings` have _ instead of . in their names."""
        with self.client(self.controller()) as client:
            client.create_assigned(topic, replicas, **settings)
        self.wait_in_sync(topic, replicas)

    def wait_in_sync(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Wait until every broker knows all replicas of the topic as in sync."""
        wanted = [len(ids) for ids in replicas]
        for number in self.brokers:
            with self.client(number) as client:
                wait_for(
                    lambda client=client: client.in_sync(topic) == wanted,
                    f"broker {number}: not all replicas of {topic} are in sync",
                    0.1,
                )

    def elect_preferred_leaders(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Make the first replica of each partition its leader, and wait until all brokers know that."""
        with self.client(self.controller()) as client:
            elect_preferred_leaders(client, topic, len(replicas))
        self.wait_for_leaders({topic: {partition: ids[0] for partition, ids in enumerate(replicas)}})

    def wait_for_leaders(self, topics: Mapping[str, Mapping[int, int]]) -> float:
        """Wait until every broker names these leaders (topic -> partition -> broker id); return the perf_counter when
        the last one did.

        The responses are searched for the encoded leaders: decoding many thousand partitions would take longer than
        what is measured.
        """
        expected = [
            (_metadata_frame(topic), [struct.pack(">hii", 0, partition, leader) for partition, leader in of.items()])
            for topic, of in topics.items()
        ]
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            return max(pool.map(lambda number: self._wait_for_encoded(number, expected), list(self.brokers)))

    def _wait_for_encoded(self, number: int, expected: Sequence[tuple[bytes, Sequence[bytes]]]) -> float:
        deadline = time.monotonic() + 2 * TIMEOUT
        with self.client(number) as client:
            for frame, wanted in expected:
                while True:
                    client.socket.sendall(frame)
                    response = client.read_frame()
                    if all(one in response for one in wanted):
                        break
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"broker {number} does not know the new leaders")
                    time.sleep(POLL_S)
        return time.perf_counter()

    @contextmanager
    def removal(self, path: str) -> Iterator[Removal]:
        """Watch a znode in the block, from which it will disappear."""
        removal = Removal(path)
        if self.tree.exists(path, watch=removal.note) is None:
            raise RuntimeError(f"{path} is not in ZooKeeper")
        yield removal


class Removal:
    """The removal of a znode."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0.0
        self._happened = threading.Event()

    def note(self, event: Any) -> None:
        """Record the time if ZooKeeper notifies of the deletion."""
        if event.type == "DELETED":
            self._at = time.perf_counter()
            self._happened.set()

    def wait(self) -> float:
        """Wait for the removal; return the perf_counter when ZooKeeper notified this client of it."""
        if not self._happened.wait(TIMEOUT + SESSION_MS / 1000):
            raise RuntimeError(f"{self._path} is still in ZooKeeper")
        return self._at


@contextmanager
def cluster(
    bench: Bench, kind: str, ids: Sequence[int] = IDS, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a cluster of brokers with these ids, on empty directories, in the block. The first is the controller."""
    with bench.data() as path:
        connect = bench.fleet.zookeeper(path.name)
        running: Cluster | None = None
        try:
            running = Cluster(bench, kind, path, connect, settings or {})
            running.start(*ids[:1])
            running.tree.start(timeout=TIMEOUT)
            running.start(*ids[1:])
            yield running
        finally:
            if running is not None:
                running.close()


def _metadata_frame(topic: str) -> bytes:
    request = METADATA.Request
    message = request(topics=[request.Topics(name=topic)], allow_auto_topic_creation=False)
    return request_frame(METADATA, METADATA_VERSION, 1, frames.CLIENT, message)
