"""Where a group's offsets are kept: in ZooKeeper, in Kafka, or in both while a group moves from one to the other.

Moving, as Kafka's documentation has it: offsets.storage=kafka with dual.commit.enabled=true in all consumers, one after
the other; then, when all have it, without the second. Back: first dual commits again, then offsets.storage=zookeeper.
Source: fetchOffsets and commitOffsets of Kafka 0.8.2's ZookeeperConsumerConnector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.group_admin import GroupAdmin
from kafkapy.client.group_types import OffsetAndMetadata
from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.group_tree import GroupTree
from kafkapy.errors import KafkaError

T = TypeVar("T")

# Offsets by partition: None where nothing is committed, an error where what is there is no offset.
Found = dict[Partition, "int | KafkaError | None"]


class OffsetStore(Protocol):
    """Calls wait; they raise KafkaError, ClientError or KazooException where nobody answers. For one thread."""

    def fetch(self, partitions: Iterable[Partition]) -> Found: ...

    def commit(self, offsets: Mapping[Partition, int]) -> None: ...


class ZooKeeperOffsets:
    """/consumers/GROUP/offsets/TOPIC/PARTITION."""

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
    """What the group's coordinator keeps; waited for while it loads or moves."""

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
        """Where the coordinator has hung up, or is not there any more, the one that there is now is asked."""
        try:
            return ask()
        except BrokerTimedOut:
            raise
        except ConnectionFailed:
            return ask()


class DualOffsets:
    """Reads the greater of both, writes Kafka's and then ZooKeeper's."""

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
    """Something broken is never taken for nothing: the later offset may have been there."""
    for found in (one, other):
        if isinstance(found, KafkaError):
            return found
    known = [found for found in (one, other) if isinstance(found, int)]
    return max(known, default=None)
