"""What this broker knows of the cluster: brokers, controller and leaders, as the controller says in UpdateMetadata.

Answers to Metadata, FindCoordinator and DescribeCluster come from here. Source: Kafka's ZkMetadataCache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from kafkapy.metadata.roles import PartitionRole

NO_CONTROLLER = -1
LEADER_DURING_DELETE = -2  # the leader of a partition that is to be forgotten


class Node(NamedTuple):
    """A broker as one of its listeners shows it to clients."""

    id: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """A partition's leader (NO_LEADER if there is none), leader epoch and ISR."""

    id: int
    epoch: int
    isr: tuple[int, ...]


class MetadataCache:
    """The brokers, controller and partition leaders that this broker knows. The cache is empty until the first
    `update`. Reads take no lock."""

    def __init__(self) -> None:
        self.controller_id = NO_CONTROLLER
        self.is_complete = False  # True once the controller has sent all partitions: no others exist
        # Called with a topic and those of its partitions that are deleted. The controller waits for it, and then lets
        # the topic's name be used again.
        self.on_deleted: Callable[[str, Collection[int]], object] = lambda topic, partitions: None
        self._lock = threading.Lock()
        self._nodes: dict[str, list[Node]] = {}  # by listener
        self._leaders: dict[str, dict[int, Leader]] = {}  # by topic and partition

    def nodes(self, listener: str) -> list[Node]:
        """Return the live brokers that clients of the listener can reach, by id."""
        return self._nodes.get(listener, [])

    def node(self, broker_id: int, listener: str) -> Node | None:
        """Return a broker, or None if the broker is not alive or has no address on the listener."""
        return next((node for node in self.nodes(listener) if node.id == broker_id), None)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Return the leader of a partition, None for a partition that is not known (yet)."""
        leaders = self._leaders.get(topic)
        return leaders.get(partition) if leaders is not None else None

    def set_brokers(self, controller_id: int, nodes: Mapping[str, Iterable[Node]]) -> None:
        """Replace the known brokers and controller. `nodes` has the live brokers by listener."""
        by_listener = {listener: sorted(found) for listener, found in nodes.items()}
        with self._lock:
            self.controller_id, self._nodes = controller_id, by_listener

    def update(self, partitions: Iterable[PartitionRole]) -> None:
        """Store the leaders of these partitions. Remove partitions whose leader is LEADER_DURING_DELETE."""
        deleted: dict[str, list[int]] = {}
        with self._lock:
            for one in partitions:
                if one.leader == LEADER_DURING_DELETE:
                    self._leaders.get(one.topic, {}).pop(one.partition, None)
                    deleted.setdefault(one.topic, []).append(one.partition)
                else:
                    leader = _shared(Leader(one.leader, one.leader_epoch, tuple(one.isr)))
                    self._leaders.setdefault(one.topic, {})[one.partition] = leader
            for topic in deleted:
                if not self._leaders.get(topic, True):
                    del self._leaders[topic]
        for topic, indexes in deleted.items():
            self.on_deleted(topic, indexes)


@lru_cache(maxsize=1024)
def _shared(leader: Leader) -> Leader:
    """Return a cached Leader equal to this one, to save memory: many partitions have equal leaders and ISRs."""
    return leader
