"""The interface of a member of a source's group, for both group protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkapy.client.cluster import TopicPartition
from kafkapy.mirror.counts import Waiting


class Piece(NamedTuple):
    """The batches of one partition from one Fetch, of any format.

    The first batch may begin before `start`, the fetched offset. The last one may be incomplete.

    after: The offset after the last complete batch.
    aborted: (producer id, first offset) of the aborted transactions among them.
    """

    where: TopicPartition
    data: memoryview
    start: int
    after: int
    aborted: Sequence[tuple[int, int]] = ()


class NotCommitted(Exception):
    """Offsets were not committed: the group rebalances, or its coordinator or ZooKeeper cannot be reached.

    The next commit may succeed. If none does, the partitions' next owners start at the last successful commit.
    """


class Listener(Protocol):
    """Callbacks for assigned and revoked partitions, called by the polling thread in `poll` and `close`."""

    def on_taken(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when these partitions are newly owned."""

    def before_release(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before these partitions are given up. Commit here."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when these partitions are lost; other members may own them already."""


class Member(Protocol):
    """A member of a source's group. For one thread, except `lags`."""

    def cluster_id(self) -> str | None:
        """Return the source's cluster id, None before Kafka 0.10.1. Raises KafkaError, ClientError."""

    def open(self, listener: Listener) -> None:
        """Join the group. Raises ClientError, KafkaError or ConfigError."""

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        """Return the next pieces; none if nothing comes in time. Unreachable brokers are retried.

        Raises:
            KafkaError, ClientError: A partition or the group has an error that is not retriable.
        """

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of the next records to read. Raises NotCommitted."""

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic in the source. Raises KafkaError, ClientError."""

    def lags(self) -> Mapping[TopicPartition, int]:
        """Return the number of offsets between position and end of each owned partition, where it is known."""

    def waiting(self) -> Waiting | None:
        """Return why this member has no partitions, None if it has some."""

    def close(self) -> None:
        """Leave the group, after calling the listener."""


class SeekingMember(Member, Protocol):
    """A Member that can also continue a partition at a given offset."""

    def seek(self, where: TopicPartition, offset: int | None) -> None:
        """Continue an owned partition at an offset, or pause it (None). Pieces fetched before are dropped."""

    def position(self, where: TopicPartition) -> int:
        """Return the start of an owned partition: the group's committed offset, else as auto.offset.reset says.

        Raises KafkaError, ClientError.
        """
