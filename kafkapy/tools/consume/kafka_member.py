"""A member of a group with a coordinator, for `kafkapy consume --group`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import CommitFailed, ConnectionFailed
from kafkapy.client.fetched import ConsumerRecord, Isolation
from kafkapy.client.groups.group_consumer import GroupConsumer
from kafkapy.client.groups.group_types import OffsetAndMetadata, RebalanceListener
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.runtime.printable import printable

JOIN_WARNING_AFTER_S = 10.0  # a group without problems has completed its rebalance by then
COMMIT_EVERY_S = 1.0  # the shortest interval while records arrive; without new records the commit is immediate
WAITING = "other members must rejoin first, or it has no coordinator; see the broker's log."

Offsets = dict[TopicPartition, int]


def kafka_member(
    cluster: Cluster,
    topics: str | re.Pattern[str],
    group: str,
    *,
    reset: Literal["earliest", "latest"],
    isolation: Isolation,
) -> AbstractContextManager[KafkaMember]:
    """Return a context manager that joins the group on entry, yields the KafkaMember, and leaves the group at the end.
    Raises KafkaError at once, before entry, for a topic that does not exist.

    Args:
        topics: the name of one topic, or a pattern that is searched for in the names of all topics.
        reset: where to begin in partitions without a committed offset.
    """
    if isinstance(topics, str):
        cluster.topic(topics)  # before joining, so that no group is created for a topic that does not exist
    return _joined(cluster, topics, group, reset, isolation)


@contextmanager
def _joined(
    cluster: Cluster,
    topics: str | re.Pattern[str],
    group: str,
    reset: Literal["earliest", "latest"],
    isolation: Isolation,
) -> Iterator[KafkaMember]:
    with GroupConsumer(cluster, group, auto_offset_reset=reset, auto_commit=False, isolation=isolation) as consumer:
        member = KafkaMember(consumer, group)
        consumer.subscribe([topics] if isinstance(topics, str) else topics, member)
        yield member


class KafkaMember(RebalanceListener):
    """A Member of a group with a coordinator. It tracks the printed offsets, the committed offsets, and the end offsets
    of the partitions assigned to it."""

    def __init__(self, consumer: GroupConsumer, group: str) -> None:
        self._consumer = consumer
        self._group = group
        self._printed: Offsets = {}
        self._committed: Offsets = {}
        self._ends: dict[TopicPartition, int | None] = {}  # None: not looked up yet
        self._has_joined = False
        self._warn_at = time.monotonic() + JOIN_WARNING_AFTER_S
        self._commit_at = 0.0
        self._failure: Exception | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._has_joined = True
        self._ends.update(dict.fromkeys(partitions))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.commit()
        self.on_lost(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            for offsets in (self._printed, self._committed, self._ends):
                offsets.pop(where, None)

    def poll(self) -> Sequence[ConsumerRecord]:
        """Return the next records, or none if none came for a moment. Warn once on standard error if joining the group
        takes long."""
        records = self._consumer.poll()
        if not self._has_joined and time.monotonic() >= self._warn_at:
            self._warn_at = float("inf")
            print(f"kafkapy: still waiting for group {self._group!r}: {WAITING}", file=sys.stderr, flush=True)
        return records

    def printed(self, records: Sequence[ConsumerRecord], count: int) -> None:
        """Note that the first `count` of these records were printed, and commit from time to time. Raises the error of
        an earlier commit that cannot be retried.

        The positions of partitions without records are committed too. Without that commit, a member that began at the
        end of a partition would begin at a later end after a restart, and miss the records in between.
        """
        sys.stdout.buffer.flush()
        if self._failure is not None:
            raise self._failure
        self._printed.update(self._consumer.positions())
        for record in reversed(records[count:]):
            self._printed[record.topic, record.partition] = record.offset
        uncommitted = self._uncommitted()
        if uncommitted and (not records or time.monotonic() >= self._commit_at):
            self._commit_at = time.monotonic() + COMMIT_EVERY_S
            self._consumer.commit_async(uncommitted, self._on_commit)

    def commit(self) -> None:
        uncommitted = self._uncommitted()
        self._committed.update(uncommitted)
        if not uncommitted:
            return
        try:
            self._consumer.commit(uncommitted)
        except CommitFailed as error:
            print(
                f"kafkapy: the last printed records may be printed again by other members: {printable(error.message)}",
                file=sys.stderr,
            )

    def is_at_the_ends(self) -> bool:
        if not self._has_joined or set(self._consumer.assignment) != set(self._ends):
            return False
        unknown = [where for where, end in self._ends.items() if end is None]
        if unknown:
            self._ends.update(self._consumer.end_offsets(unknown))
        positions = self._consumer.positions()
        return all(positions.get(where, -1) >= (end or 0) for where, end in self._ends.items())

    def _uncommitted(self) -> Offsets:
        return {where: offset for where, offset in self._printed.items() if self._committed.get(where) != offset}

    def _on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is None:
            self._committed.update({where: one.offset for where, one in offsets.items() if where in self._printed})
        elif not _may_pass(error):
            self._failure = error


def _may_pass(error: Exception) -> bool:
    """Return True if a later commit may succeed: the error is retriable, the broker cannot be reached, or a rebalance
    is near. In a rebalance, `on_revoked` commits before the partitions are given up."""
    if isinstance(error, KafkaError) and is_retriable(error.code):
        return True
    return isinstance(error, CommitFailed | ConnectionFailed)
