"""This broker's view of the cluster: the live brokers, the controller and the partition leaders, as the controller
sends them in UpdateMetadata.

The responses to Metadata, FindCoordinator and DescribeCluster are built from this cache. Source: Kafka's
ZkMetadataCache.
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
    """A broker with its address on one listener, as clients of that listener see it."""

    id: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """The leader of a partition (NO_LEADER if there is none), its leader epoch and the ISR."""

    id: int
    epoch: int
    isr: tuple[int, ...]


class MetadataCache:
    """The live brokers, controller and partition leaders of the cluster, as this broker knows them. The cache is empty
    until the first update. Reads take no lock."""

    def __init__(self) -> None:
        self.controller_id = NO_CONTROLLER
        self.is_complete = False  # True once the controller has sent all partitions: no others exist
        # Called with a topic and those of its partitions that are deleted. The controller waits until this returns,
        # before it allows a new topic of the same name.
        self.on_deleted: Callable[[str, Collection[int]], object] = lambda topic, partitions: None
        self._lock = threading.Lock()
        self._nodes: dict[str, list[Node]] = {}  # by listener
        self._leaders: dict[str, dict[int, Leader]] = {}  # by topic and partition

    def nodes(self, listener: str) -> list[Node]:
        """Return the live brokers that have an address on the listener, sorted by broker id."""
        return self._nodes.get(listener, [])

    def node(self, broker_id: int, listener: str) -> Node | None:
        """Return the broker with its address on the listener, or None if the broker is not alive or has no address on
        this listener."""
        return next((node for node in self.nodes(listener) if node.id == broker_id), None)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Return the leader of a partition with its leader epoch and ISR, or None if the partition is not known
        (yet)."""
        leaders = self._leaders.get(topic)
        return leaders.get(partition) if leaders is not None else None

    def set_brokers(self, controller_id: int, nodes: Mapping[str, Iterable[Node]]) -> None:
        """Replace the known brokers and controller. `nodes` has the live brokers by listener name."""
        by_listener = {listener: sorted(found) for listener, found in nodes.items()}
        with self._lock:
            self.controller_id, self._nodes = controller_id, by_listener

    def update(self, partitions: Iterable[PartitionRole]) -> None:
        """Store the leaders of these partitions. A partition whose leader is LEADER_DURING_DELETE is removed from the
        cache, and `on_deleted` is called with its topic and partition."""
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
    """Return a cached Leader object that is equal to this one. This saves memory, because many partitions have equal
    leaders and ISRs."""
    return leader
