"""This broker's view of the cluster: the live brokers, the controller, the topics and the partition leaders, as the
controller sends them in UpdateMetadata.

The responses to Metadata, FindCoordinator and DescribeCluster are built from this cache. Source: Kafka's
ZkMetadataCache.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import NO_LEADER, PartitionRole

log = logging.getLogger("kafkapy.metadata.cache")

NO_CONTROLLER = -1
LEADER_DURING_DELETE = -2  # the leader of a partition that is to be forgotten
_UNDECIDED_EPOCH = -1


class Node(NamedTuple):
    """A broker with its address on one listener, as clients of that listener see it."""

    id: int
    host: str
    port: int
    rack: str | None


class LiveBroker(NamedTuple):
    """A live broker: its id, the host and port of each of its listeners, by listener name, and its rack."""

    id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None


class Leader(NamedTuple):
    """The leader of a partition as the controller has sent it: broker id (NO_LEADER if there is none), leader epoch,
    ISR, replicas, the replicas that are offline, and the version of the partition's state node.
    """

    id: int
    epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    partition_epoch: int = 0

    @property
    def is_decided(self) -> bool:
        """False for a partition whose leader the controller has not sent yet: see `MetadataCache.expect`."""
        return self.id != NO_LEADER or self.epoch != _UNDECIDED_EPOCH


class TopicUpdate(NamedTuple):
    """The changed partitions of a topic, by index. A partition whose leader is LEADER_DURING_DELETE is deleted."""

    name: str
    id: bytes
    partitions: Mapping[int, Leader]


class _Brokers:
    """The live brokers, by id and by listener. Replaced as a whole, never changed."""

    def __init__(self, brokers: Iterable[LiveBroker] = ()) -> None:
        self.by_id = {broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)}
        self.by_listener: dict[str, list[Node]] = {}
        self.nodes: dict[tuple[int, str], Node] = {}
        for broker in self.by_id.values():
            for listener, (host, port) in broker.endpoints.items():
                node = Node(broker.id, host, port, broker.rack)
                self.by_listener.setdefault(listener, []).append(node)
                self.nodes[broker.id, listener] = node


class MetadataCache:
    """The live brokers, controller, topics and partition leaders of the cluster, as this broker knows them. The cache
    is empty until the first update. Reads take no lock.
    """

    def __init__(self) -> None:
        self.controller_id = NO_CONTROLLER
        self.is_complete = False  # True once the controller has sent all partitions: no others exist; see `complete`
        self.expects_topics = False  # topics exist, so an update with brokers but no topics is not complete
        # Called with a topic and those of its partitions that are deleted. The controller waits until this returns,
        # before it allows a new topic of the same name.
        self.on_deleted: Callable[[str, Collection[int]], object] = lambda topic, partitions: None
        # Called with the id of a controller after another broker has taken its place.
        self.on_controller_replaced: Callable[[int], object] = lambda controller_id: None
        # Called with the ids of brokers that are not alive any more.
        self.on_brokers_gone: Callable[[Collection[int]], object] = lambda broker_ids: None
        self._lock = threading.Lock()
        self._brokers = _Brokers()
        self._waiting: dict[Callable[[], object], None] = {}  # called in this order when brokers are known
        # Updates change these dicts in place, because a copy of thousands of partitions would be slow. Each read is
        # one look-up or one copy(), which are atomic.
        self._partitions: dict[str, dict[int, Leader]] = {}  # by topic and partition
        self._ids: dict[str, bytes] = {}  # topic ids by name
        self._names: dict[bytes, str] = {}  # topic names by id

    # The brokers.

    def nodes(self, listener: str) -> list[Node]:
        """Return the live brokers that have an address on the listener, sorted by broker id."""
        return self._brokers.by_listener.get(listener, [])

    def node(self, broker_id: int, listener: str) -> Node | None:
        """Return the broker with its address on the listener, or None if the broker is not alive or has no address on
        this listener.
        """
        return self._brokers.nodes.get((broker_id, listener))

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._brokers.by_id

    @property
    def knows_brokers(self) -> bool:
        """False until the first update of the live brokers; with `expects_topics`, until the first topics have come,
        too.
        """
        return bool(self._brokers.by_id) and (self.is_complete or not self.expects_topics)

    def live_brokers(self) -> list[LiveBroker]:
        """Return the live brokers, sorted by broker id."""
        return list(self._brokers.by_id.values())

    # The topics.

    def __contains__(self, topic: object) -> bool:
        return topic in self._partitions

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._partitions)

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._partitions)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this topic id, None if there is none."""
        return self._names.get(topic_id)

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id, ZERO_ID if the topic has none or is not known."""
        return self._ids.get(topic, ZERO_ID)

    def partitions(self, topic: str) -> dict[int, Leader]:
        """Return all partitions of a topic, by index; {} if the topic is not known. The caller may change the dict."""
        found = self._partitions.get(topic)
        return found.copy() if found is not None else {}

    def indexes(self, topic: str) -> Collection[int]:
        """Return the indexes of the topic's partitions, for `in` and len(), without a copy."""
        return self._partitions.get(topic, {}).keys()

    def has(self, topic: str, partition: int) -> bool:
        """Return True if the partition exists, even if its leader is not known yet."""
        found = self._partitions.get(topic)
        return found is not None and partition in found

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Return the leader of a partition with its leader epoch, ISR and replicas, or None if the controller has not
        sent it (yet).
        """
        partitions = self._partitions.get(topic)
        found = partitions.get(partition) if partitions is not None else None
        return found if found is not None and found.is_decided else None

    # Updates.

    def set_brokers(self, controller_id: int, brokers: Iterable[LiveBroker]) -> None:
        """Replace the live brokers and the controller. The first time, make the calls that wait for brokers."""
        found = _Brokers(brokers)
        with self._lock:
            before = self.controller_id
            gone = self._brokers.by_id.keys() - found.by_id.keys()
            self.controller_id, self._brokers = controller_id, found
        if before not in (NO_CONTROLLER, controller_id):
            self.on_controller_replaced(before)
        if gone:
            self.on_brokers_gone(gone)
        self._call_waiting()

    def complete(self) -> None:
        """Note that all partitions are known, and make the calls that wait for that."""
        self.is_complete = True
        self._call_waiting()

    def expect_no_topics(self) -> None:
        """Expect no topics, which may be deleted by now, and make the waiting calls if the brokers are known."""
        self.expects_topics = False
        self._call_waiting()

    def _call_waiting(self) -> None:
        with self._lock:
            if not self.knows_brokers:
                return
            waiting, self._waiting = self._waiting, {}
        for call in waiting:
            try:
                call()
            except Exception:  # the other calls and the update must not be lost
                log.exception("a call that waited for brokers failed: %s", call)

    def when_brokers_are_known(self, call: Callable[[], object]) -> None:
        """Call `call`, which must be short, as soon as `knows_brokers` is True; at once if it is True already."""
        with self._lock:
            if not self.knows_brokers:
                self._waiting[call] = None
                return
        call()

    def stop_waiting(self, call: Callable[[], object]) -> bool:
        """Cancel a call that was passed to `when_brokers_are_known`. Return False if it is too late for that."""
        with self._lock:
            waits = call in self._waiting
            self._waiting.pop(call, None)
        return waits

    def forget_controller(self, controller_id: int) -> None:
        """Forget the present controller if it is `controller_id`."""
        with self._lock:
            if self.controller_id == controller_id:
                self.controller_id = NO_CONTROLLER

    def expect(self, topic: str, topic_id: bytes, assignment: Mapping[int, Collection[int]]) -> None:
        """Add a topic whose leaders are still to be sent. `assignment` has the replicas of its partitions. Partitions
        that are in the cache stay as they are.
        """
        with self._lock:
            if self._is_another(topic, topic_id):
                self._partitions.pop(topic, None)
            partitions = self._partitions.setdefault(topic, {})
            for index, replicas in assignment.items():
                if index not in partitions:
                    partitions[index] = _undecided(tuple(replicas))
            self._set_id(topic, topic_id)

    def update(self, roles: Iterable[PartitionRole]) -> None:
        """Store the leaders of these partitions, as `store` does. Replicas on dead brokers are offline, too."""
        alive = self._brokers.by_id
        topics: dict[str, tuple[bytes, dict[int, Leader]]] = {}
        for one in roles:
            _, partitions = topics.setdefault(one.topic, (one.topic_id, {}))
            replicas = tuple(one.replicas)
            offline = tuple(replica for replica in replicas if replica in one.offline or replica not in alive)
            partitions[one.partition] = Leader(
                one.leader, one.leader_epoch, tuple(one.isr), replicas, offline, one.partition_epoch
            )
        self.store(TopicUpdate(name, topic_id, partitions) for name, (topic_id, partitions) in topics.items())

    def remove(self, topic: str) -> None:
        """Remove a topic that is deleted, and call `on_deleted`."""
        with self._lock:
            indexes = list(self._partitions.pop(topic, ()))
            self._set_id(topic, ZERO_ID)
        self.on_deleted(topic, indexes)

    def store(self, topics: Iterable[TopicUpdate]) -> None:
        """Store the changed partitions of these topics; keep the others. Partitions whose leader is
        LEADER_DURING_DELETE are removed from the cache, and `on_deleted` is called with their topic and indexes. A
        topic id of zero removes the topic's id.
        """
        deleted: dict[str, list[int]] = {}
        with self._lock:
            for topic in topics:
                gone = self._store(topic)
                if gone:
                    deleted[topic.name] = gone
        for name, indexes in deleted.items():
            self.on_deleted(name, indexes)

    def _store(self, topic: TopicUpdate) -> list[int]:
        """Store the changed partitions of a topic, and return the indexes of those that are deleted."""
        deleted = []
        partitions = self._partitions.get(topic.name)
        is_deletion = any(leader.id == LEADER_DURING_DELETE for leader in topic.partitions.values())
        if self._is_another(topic.name, topic.id) and not is_deletion:
            partitions = None
        for index, leader in topic.partitions.items():
            if leader.id == LEADER_DURING_DELETE:
                deleted.append(index)
                if partitions is not None:
                    partitions.pop(index, None)
            else:
                if partitions is None:
                    partitions = {}
                partitions[index] = _shared(leader)
        if partitions:
            self._set_id(topic.name, topic.id)
            self._partitions[topic.name] = partitions
        else:
            self._partitions.pop(topic.name, None)
            self._set_id(topic.name, ZERO_ID)
        return deleted

    def _is_another(self, topic: str, topic_id: bytes) -> bool:
        """Return True if the cache has an earlier topic of this name, whose deletion this broker has missed."""
        before = self._ids.get(topic, ZERO_ID)
        return ZERO_ID not in (before, topic_id) and before != topic_id

    def _set_id(self, topic: str, topic_id: bytes) -> None:
        before = self._ids.get(topic, ZERO_ID)
        if before == topic_id:
            return
        if topic_id == ZERO_ID:
            del self._ids[topic]
        else:
            self._ids[topic] = topic_id
            self._names[topic_id] = topic
        self._names.pop(before, None)


# Many partitions have equal leaders and replicas. They share one object, to save memory.


@lru_cache(maxsize=4096)
def _shared(leader: Leader) -> Leader:
    return leader


@lru_cache(maxsize=4096)
def _undecided(replicas: tuple[int, ...]) -> Leader:
    return Leader(NO_LEADER, _UNDECIDED_EPOCH, (), replicas)
