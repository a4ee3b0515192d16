"""The stores of a group's committed offsets: ZooKeeper, Kafka, or both while a group moves from one to the other.

To move to Kafka, as Kafka's documentation says: set offsets.storage=kafka and dual.commit.enabled=true in one consumer
after the other; when all consumers have both settings, set dual.commit.enabled=false. To move back: enable dual commits
again first, then set offsets.storage=zookeeper.
Source: fetchOffsets and commitOffsets of Kafka 0.8.2's ZookeeperConsumerConnector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.znodes.group_tree import GroupTree
from kafkapy.errors import KafkaError

T = TypeVar("T")

# Offsets by partition: None if nothing is committed, an error if the stored value is not an offset.
Found = dict[Partition, "int | KafkaError | None"]


class OffsetStore(Protocol):
    """A store of one group's committed offsets. Methods block and raise KafkaError, ClientError or KazooException."""

    def fetch(self, partitions: Iterable[Partition]) -> Found:
        """Return the committed offset of each partition.

        The value is None if nothing is committed, and a KafkaError if the stored value is not an offset.
        """

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Store the given offsets as the group's committed offsets."""


class ZooKeeperOffsets:
    """Committed offsets in the znodes /consumers/GROUP/offsets/TOPIC/PARTITION."""

    def __init__(self, tree: GroupTree) -> None:
        self._tree = tree

    def fetch(self, partitions: Iterable[Partition]) -> Found:
        return {partition: self._read(partition) for partition in partitions}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        for partition, offset in offsets.items():
            self._tree.set_offset(partition, offset)

    def _read(self, partition: Partition) -> int | KafkaError | None:
        try:
            return self._tree.offset(partition)
        except KafkaError as error:
            return error


class KafkaOffsets:
    """Committed offsets in Kafka, at the group's coordinator. Retries while the coordinator is loading or moving."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._admin = GroupAdmin(cluster)
        self._group = group

    def fetch(self, partitions: Iterable[Partition]) -> Found:
        wanted = {(topic, int(name)): (topic, name) for topic, name in partitions}
        committed = self._twice(lambda: self._admin.offsets_of(self._group, wanted))
        return {partition: committed.get(where) for where, partition in wanted.items()}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        if offsets:
            wire = {(topic, int(name)): OffsetAndMetadata(offset) for (topic, name), offset in offsets.items()}
            self._twice(lambda: self._admin.commit(self._group, wire))

    def _twice(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`. Call `ask` again if the connection to the coordinator was broken."""
        try:
            return ask()
        except BrokerTimedOut:
            raise
        except ConnectionFailed:
            return ask()


class DualOffsets:
    """Committed offsets in both stores: reads the larger of the two offsets, commits to Kafka and then to ZooKeeper."""

    def __init__(self, kafka: OffsetStore, zookeeper: OffsetStore) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    def fetch(self, partitions: Iterable[Partition]) -> Found:
        wanted = list(partitions)
        here, there = self._kafka.fetch(wanted), self._zookeeper.fetch(wanted)
        return {partition: _later(here[partition], there[partition]) for partition in wanted}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._kafka.commit(offsets)
        self._zookeeper.commit(offsets)


def _later(one: int | KafkaError | None, other: int | KafkaError | None) -> int | KafkaError | None:
    """Return the larger of two committed offsets, or None if nothing is committed in either store.

    If either store returned an error, return that error, because the unreadable offset may be the larger offset.
    """
    for found in (one, other):
        if isinstance(found, KafkaError):
            return found
    known = [found for found in (one, other) if isinstance(found, int)]
    return max(known, default=None)
