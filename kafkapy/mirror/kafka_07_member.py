"""The mirror's member of a consumer group in a cluster of Kafka 0.7. Imports kazoo.

A partition of 0.7 is a number on a broker (8-0, 8-1, 9-0): each broker has its own partitions of a topic. Here they are
counted over all brokers of the topic, in the order of the brokers' ids, so that records may keep their partition in the
target. A broker that joins later gets the next numbers.

Offsets are positions in a log. All messages inside a compressed message have its position, and the position to commit
is that after a whole stored message, so never one inside a compressed message. Messages have no keys and no timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.streams import Chunk
from kafkapy.client.original.filters import TopicFilter
from kafkapy.metadata.zookeeper.client import named
from kafkapy.mirror.counts import Waiting
from kafkapy.mirror.member import Piece
from kafkapy.mirror.source_settings import ZooKeeperSource
from kafkapy.mirror.zookeeper_member import ZooKeeperMember


class Kafka07Member(ZooKeeperMember):
    """A member of a group in Kafka 0.7. Use it like a ZooKeeperMember without `seeks`."""

    def __init__(self, settings: ZooKeeperSource, topics: TopicFilter, connector: ConsumerConnector) -> None:
        super().__init__(settings, topics, connector=connector)
        self._numbers: dict[Partition, int] = {}
        self._names: dict[TopicPartition, Partition] = {}

    def cluster_id(self) -> str | None:
        return None  # which rules out exactly-once delivery

    def _given_up(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        # The connector's pairs have the number on the broker, so partitions of several brokers may have the same pair.
        # Commit all partitions that the pair may stand for: committing one that is not given up does no harm.
        given_up = set(partitions)
        return [where for where, owned in self._owned.items() if owned.where in given_up]

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._connector.commit_named({self._names[where]: offset for where, offset in offsets.items()})

    def partition_count(self, topic: str) -> int:
        names = self._sorted_names(topic)
        highest = max((number for (name, _), number in self._numbers.items() if name == topic), default=-1)
        return max(len(names), highest + 1)

    def _end_offsets(self) -> Mapping[TopicPartition, int]:
        return {self._numbered(partition): end for partition, end in self._connector.end_offsets().items()}

    def waiting(self) -> Waiting | None:
        whose = self._connector.waits_for
        return None if whose is None else Waiting(f"partitions of group {self._settings.group_id}", whose, None)

    def _piece(self, chunk: Chunk) -> Piece:
        return Piece(self._numbered(chunk.owned.partition), chunk.data, chunk.start, max(chunk.after, chunk.start))

    def _numbered(self, partition: Partition) -> TopicPartition:
        """Return the topic and the number of a partition, counted over all brokers. Raises ConnectionFailed."""
        topic = partition[0]
        if partition not in self._numbers:
            taken = {number for (name, _), number in self._numbers.items() if name == topic}
            for position, name in enumerate(self._sorted_names(topic)):
                if (topic, name) not in self._numbers:
                    self._add((topic, name), position if position not in taken else max(taken) + 1)
                    taken.add(self._numbers[topic, name])
            if partition not in self._numbers:  # the partition's broker is not registered at this moment
                self._add(partition, max(taken, default=-1) + 1)
        return topic, self._numbers[partition]

    def _add(self, partition: Partition, number: int) -> None:
        self._numbers[partition] = number
        self._names[partition[0], number] = partition

    def _sorted_names(self, topic: str) -> Sequence[str]:
        """Return the names of a topic's partitions, in the order of brokers and numbers. Raises ConnectionFailed."""
        try:
            names = self._connector.partitions_of(topic)
        except (KazooException, KazooTimeoutError) as error:
            raise ConnectionFailed(f"the partitions cannot be read from ZooKeeper: {named(error)}") from None
        return sorted(names, key=lambda name: tuple(map(int, name.split("-"))))
