"""`kafkapy consume --group`: what a member of a consumer group gets, printed and then committed.

A record counts as done once its line has left this process: after a crash between the two it is printed again, by
whoever gets the partition, and none is left out.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import CommitFailed, ConnectionFailed
from kafkapy.client.fetched import ConsumerRecord, Isolation
from kafkapy.client.group_consumer import GroupConsumer
from kafkapy.client.group_types import OffsetAndMetadata, RebalanceListener
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.tools.interrupts import until_interrupted

PATIENCE_S = 10.0  # a group has begun by then, unless something is amiss that a person wants to know of
COMMIT_EVERY_S = 1.0  # at most, while records come; when none come, at once
WAITING = "other members have to come back to it first, or there is no coordinator, and the broker's log says why."

Offsets = dict[TopicPartition, int]


def consume_group(
    cluster: Cluster,
    topics: str | re.Pattern[str],
    group: str,
    *,
    reset: Literal["earliest", "latest"],
    isolation: Isolation,
    most: int | None,
    follow: bool,
    show: Callable[[ConsumerRecord], bytes],
) -> bool:
    """Prints and commits until `most` records were printed, or, unless it is to follow, until it has reached the ends
    that its partitions had when it got them. Returns False if it was interrupted before.

    Args:
        topics: the name of one, or a pattern that is looked for in the names of all.
    """
    if isinstance(topics, str):
        cluster.topic(topics)  # raises for one that is not there, before a group is made for it
    out = sys.stdout.buffer
    with (
        GroupConsumer(cluster, group, auto_offset_reset=reset, auto_commit=False, isolation=isolation) as consumer,
        until_interrupted() as interrupted,
    ):
        done = _Done(consumer)
        consumer.subscribe([topics] if isinstance(topics, str) else topics, done)
        count = 0
        tell_at = time.monotonic() + PATIENCE_S
        while not interrupted.is_set() and count != most:
            records = consumer.poll()
            if not done.has_joined and time.monotonic() >= tell_at:
                tell_at = float("inf")
                print(f"kafkapy: still waiting for group {group!r}: {WAITING}", file=sys.stderr, flush=True)
            printed = records if most is None else records[: most - count]
            for record in printed:
                out.write(show(record))
            out.flush()
            count += len(printed)
            done.printed(records, len(printed))
            if not follow and done.at_the_ends():
                break
        done.commit()
    return not interrupted.is_set()


class _Done(RebalanceListener):
    """How far the printing is, of that how much is committed, and where it was to end."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer
        self._done: Offsets = {}
        self._known: Offsets = {}  # of those what is committed
        self._ends: dict[TopicPartition, int | None] = {}  # None: to be asked for
        self.has_joined = False
        self._commit_at = 0.0
        self._failure: Exception | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.has_joined = True
        self._ends.update(dict.fromkeys(partitions))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.commit()
        self.on_lost(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            for offsets in (self._done, self._known, self._ends):
                offsets.pop(where, None)

    def printed(self, records: Sequence[ConsumerRecord], count: int) -> None:
        """So many of the records of a poll were printed; commits now and then.

        A partition without records counts too: who began at its end must not begin at a later end next time.
        """
        if self._failure is not None:
            raise self._failure
        self._done.update(self._consumer.positions())
        for record in reversed(records[count:]):
            self._done[record.topic, record.partition] = record.offset
        news = self._news()
        if news and (not records or time.monotonic() >= self._commit_at):
            self._commit_at = time.monotonic() + COMMIT_EVERY_S
            self._consumer.commit_async(news, self._committed)

    def _news(self) -> Offsets:
        """What is done and not known to be committed."""
        return {where: offset for where, offset in self._done.items() if self._known.get(where) != offset}

    def _committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is None:
            self._known.update({where: one.offset for where, one in offsets.items() if where in self._done})
        elif not _may_pass(error):
            self._failure = error

    def commit(self) -> None:
        """Commits what is done, and waits for that."""
        news = self._news()
        self._known.update(news)
        if not news:
            return
        try:
            self._consumer.commit(news)
        except CommitFailed as error:
            print(f"kafkapy: the last records printed may be printed again by others: {error.message}", file=sys.stderr)

    def at_the_ends(self) -> bool:
        """Whether everything was read that was there when this member got its partitions."""
        if not self.has_joined or set(self._consumer.assignment) != set(self._ends):
            return False
        unknown = [where for where, end in self._ends.items() if end is None]
        if unknown:
            self._ends.update(self._consumer.end_offsets(unknown))
        positions = self._consumer.positions()
        return all(positions.get(where, -1) >= (end or 0) for where, end in self._ends.items())


def _may_pass(error: Exception) -> bool:
    """Whether a later commit may do: the broker is away, or a rebalance is near, before which `commit` is called."""
    if isinstance(error, KafkaError) and is_retriable(error.code):
        return True
    return isinstance(error, CommitFailed | ConnectionFailed)
