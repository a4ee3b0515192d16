"""What a mirror asks of a member of a source's group, in whatever protocol that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.original.filters import TopicFilter
from kafkapy.mirror.properties import BadProperty
from kafkapy.mirror.source_settings import GroupSource, SourceSettings


class Piece(NamedTuple):
    """What one Fetch brought of a partition: batches of any format, the first of which may begin before `start`, the
    offset that was asked for, and the last of which may be cut off.

    after: the offset behind the whole ones.
    aborted: (producer id, first offset) of aborted transactions in it.
    """

    where: TopicPartition
    data: memoryview
    start: int
    after: int
    aborted: Sequence[tuple[int, int]] = ()


class NotCommitted(Exception):
    """Offsets were not committed: the group rebalances, or its coordinator or ZooKeeper is away. The next commit may
    succeed; if not, somebody reads on from the last one that did."""


class Listener(Protocol):
    """Is told of partitions that come and go, by the thread that polls, in `poll` and `close`."""

    def on_taken(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on."""

    def before_release(self, partitions: Sequence[TopicPartition]) -> None:
        """These are given up after this: the place to commit what was done."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These may be somebody else's already."""


class Member(Protocol):
    """One member of a source's group, for one thread but for `lags`."""

    def cluster_id(self) -> str | None:
        """Of the source; None before Kafka 0.10.1, which has none. Raises KafkaError, ClientError."""

    def open(self, listener: Listener) -> None:
        """Joins. Raises ClientError, KafkaError or a ConfigError when that cannot be."""

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        """The next pieces; none when nothing came in time. Brokers that are away are waited for.

        Raises:
            KafkaError, ClientError: a partition, or the group, cannot be read however often it is tried.
        """

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of the next records to read. Raises NotCommitted."""

    def partition_count(self, topic: str) -> int:
        """Of a topic in the source. Raises KafkaError, ClientError."""

    def lags(self) -> Mapping[TopicPartition, int]:
        """How many offsets the partitions that are ours are behind their ends, as far as that is known."""

    def close(self) -> None:
        """Leaves the group, after telling the listener."""


class SeekingMember(Member, Protocol):
    """One that reads a partition from where it is told, too."""

    def seek(self, where: TopicPartition, offset: int | None) -> None:
        """A partition goes on there, or stands still (None), if it is ours. Nothing comes any more of what was read of
        it before."""

    def position(self, where: TopicPartition) -> int:
        """Where a partition that is ours begins, or goes on, in the source's view: behind the group's offset, else as
        auto.offset.reset says. Raises KafkaError, ClientError."""


def member_of(settings: SourceSettings, topics: TopicFilter, *, seeks: bool = False) -> SeekingMember:
    """Args: seeks: partitions are read from where `seek` says, and not before it has."""
    if isinstance(settings, GroupSource):
        from kafkapy.mirror.group_member import GroupMember

        return GroupMember(settings, topics)
    try:
        from kafkapy.mirror.zookeeper_member import ZooKeeperMember
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        told = f"{settings.file}: ZooKeeper needs the library kazoo: pip install 'kafkapy[zookeeper]'"
        raise BadProperty(told) from None
    return ZooKeeperMember(settings, topics, seeks=seeks)
