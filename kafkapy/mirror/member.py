"""The interface of a mirror's member in a source's group, in Kafka or in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkapy.client.cluster import TopicPartition
from kafkapy.mirror.counts import Waiting


class Piece(NamedTuple):
    """The record batches, of any format, that one Fetch returned for one partition.

    The first batch may begin before `start`, the fetched offset. The last batch may be incomplete.

    after: The offset after the last complete batch.
    aborted: (producer id, first offset) of each aborted transaction among the batches.
    """

    where: TopicPartition
    data: memoryview
    start: int
    after: int
    aborted: Sequence[tuple[int, int]] = ()


class NotCommitted(Exception):
    """Offsets were not committed, as the group rebalances, or its coordinator or ZooKeeper cannot be reached.

    The next commit may succeed. If no later commit does, the partitions' next owners start at the last successful
    commit.
    """


class Listener(Protocol):
    """Callbacks for assigned and revoked partitions.

    The thread that calls the member's `poll` and `close` calls them.
    """

    def on_taken(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when this member has become the owner of these partitions."""

    def before_release(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before this member gives up these partitions. This is the last moment to commit their offsets."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when this member has lost these partitions. Other members may already own them."""


class Member(Protocol):
    """A member of a source's group. For one thread, except `lags`, which any thread may call."""

    def cluster_id(self) -> str | None:
        """Return the source's cluster id, or None if the source is older than Kafka 0.10.1.

        Raises KafkaError or ClientError.
        """

    def open(self, listener: Listener) -> None:
        """Join the source's group. Ownership changes are passed to `listener`.

        Raises ClientError, KafkaError or ConfigError.
        """

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        """Return the next fetched Pieces (batches of one partition each), or none if no data comes in time.

        If brokers cannot be reached, they are tried again. Raises KafkaError or ClientError if a partition or the group
        has an error that is not retriable.
        """

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets, each that of the next record to read in a partition. Raises NotCommitted."""

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions that a topic has in the source. Raises KafkaError or ClientError."""

    def lags(self) -> Mapping[TopicPartition, int]:
        """Return the number of offsets between position and end of each owned partition for which it is known."""

    def waiting(self) -> Waiting | None:
        """Return the reason why this member has no partitions, or None if it has partitions."""

    def close(self) -> None:
        """Call the listener for the owned partitions, and leave the group."""


class SeekingMember(Member, Protocol):
    """A member of a source's group that can also start reading a partition at a given offset."""

    def seek(self, where: TopicPartition, offset: int | None) -> None:
        """Continue reading an owned partition at an offset, or pause reading it if `offset` is None.

        Data that was already fetched from the partition is dropped.
        """

    def position(self, where: TopicPartition) -> int:
        """Return the offset at which to start reading an owned partition.

        That is the group's committed offset, or, if there is none, the offset that auto.offset.reset selects. Raises
        KafkaError or ClientError.
        """
