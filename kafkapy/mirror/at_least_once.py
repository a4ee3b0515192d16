"""A stream that copies at least once: one thread, a member of the source's group, and a producer.

What is read is sent; offsets are committed to the source only when everything before them is acknowledged by the
target: all is flushed first, then the position behind what was read is committed. That is done every
`commit_interval_s`, before partitions are given up, and at the end.

What if something dies
----------------------
- *The mirror:* what was sent since the last commit is read and sent again by whoever gets the partition: it may be in
  the target twice. Nothing that was not acknowledged counts as done.
- *A broker of the target:* batches are sent again until `delivery.timeout.ms`; with sequence numbers
  (`enable.idempotence`) each is stored once. Reading stops meanwhile, when what waits is as much as may wait. If that
  takes longer than `max.poll.interval.ms` the group gives the partitions to others, who begin at the last commit.
- *A broker of the source, its coordinator, or ZooKeeper:* reading waits. A commit that fails is made up for by the next
  one; until then more would be repeated.
- *The mirror sleeps (SIGSTOP) while others get its partitions:* when it wakes up, it sends what it had read. It commits
  nothing for partitions that are not its own any more: the group refuses. That is the difference to exactly_once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ConnectionFailed
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.delivery import SafeDelivery, target_cluster
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.sources import Member, NotCommitted, Piece
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.mirror.target_topics import TargetTopics
from kafkapy.record.rebatch import Rebatcher

log = logging.getLogger(__name__)

POLL_S = 0.5
BACKOFF_S = 0.2

T = TypeVar("T")


class AtLeastOnce:
    """A stream. For one thread; is its member's listener."""

    def __init__(self, member: Member, target: TargetSettings, options: MirrorOptions, counts: Counts) -> None:
        self._member = member
        self._options = options
        self._counts = counts
        self._linger_s = target.linger_s
        self._topics = TargetTopics(
            target_cluster(target),
            options.create_topics,
            same_numbers="records are to keep their partition" if options.keep_partitions else None,
        )
        self._rebatcher = Rebatcher(
            codec=target.codec, batch_bytes=target.batch_bytes, by_number=options.keep_partitions
        )
        self._delivery = SafeDelivery(target, counts, abort=options.abort_on_send_failure)
        self._read: dict[TopicPartition, int] = {}  # behind what was read, and not committed yet
        self._flush_at = float("inf")  # when something waits for more of its batch

    def open(self) -> None:
        """Joins the group."""
        self._member.open(self)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until it is stopped; what was read then is in the target, and committed. Raises what cannot be waited out."""
        commit_at = time.monotonic() + self._options.commit_interval_s
        while not stopped():
            now = time.monotonic()
            pieces = self._member.poll(min(POLL_S, max(0.0, self._flush_at - now), max(0.0, commit_at - now)))
            self._counts.lags = self._member.lags()
            for piece in pieces:
                self._take(piece, stopped)
            now = time.monotonic()
            if now >= self._flush_at:
                self._flush()
            if now >= commit_at:
                self._commit()
                commit_at = now + self._options.commit_interval_s
        self._commit()

    def close(self) -> None:
        """Leaves the group. What is not committed is left as it is."""
        self._read.clear()
        try:
            self._member.close()
        finally:
            self._delivery.close()
            self._topics.close()

    # What the member tells

    def on_taken(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def before_release(self, partitions: Sequence[TopicPartition]) -> None:
        if self._read.keys() & set(partitions):
            self._commit()
        self.on_lost(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._read.pop(where, None)

    def _take(self, piece: Piece, stopped: Callable[[], bool]) -> None:
        topic, number = piece.where
        in_source = partial(self._member.partition_count, topic)
        count = patiently(lambda: self._topics.partition_count(topic, in_source, number), stopped)
        if count is None:
            return  # it is not read, then
        self._delivery.send(self._rebatcher.feed(piece.where, piece.data, piece.start, count, aborted=piece.aborted))
        self._read[piece.where] = piece.after
        self._flush_at = min(self._flush_at, time.monotonic() + self._linger_s)

    def _flush(self) -> None:
        self._delivery.send(self._rebatcher.finish())
        self._delivery.flush()
        self._flush_at = float("inf")

    def _commit(self) -> None:
        if not self._read:
            return
        self._flush()
        try:
            self._member.commit(self._read)
        except NotCommitted as error:
            self._counts.failed_commits += 1
            log.info("%s; it is tried again", error)
        else:
            self._counts.commits += 1
            self._read.clear()


def patiently(work: Callable[[], T], stopped: Callable[[], bool]) -> T | None:
    """What `work` returns; again while it raises what time may heal. None when it was stopped meanwhile."""
    while not stopped():
        try:
            return work()
        except ConnectionFailed as error:
            log.info("tries again: %s", error)
        except KafkaError as error:
            if not is_retriable(error.code):
                raise
            log.info("tries again: %s", error)
        time.sleep(BACKOFF_S)
    return None
