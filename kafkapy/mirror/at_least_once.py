"""A mirror stream with at-least-once delivery: one thread, a member of the source's group, and a producer.

Offsets are committed to the source only when the target has acknowledged everything before them: the stream first
flushes the producer, then commits the position after the records that it has read. The stream does this every
`commit_interval_s`, before partitions are given up, and when the mirror stops.

Failures
--------
- *The mirror stops:* the partition's next owner reads and sends everything after the last commit again, so these
  records may be in the target twice. A record counts as copied only once the target has acknowledged the record.
- *A broker of the target fails:* batches are retried for `delivery.timeout.ms`; with sequence numbers
  (`enable.idempotence`) each batch is stored once. Reading pauses when too much data waits to be sent. If the pause is
  longer than `max.poll.interval.ms`, the group gives the partitions to other members, which start at the last commit.
- *A broker of the source, its coordinator, or ZooKeeper fails:* reading waits. After a failed commit, the next commit
  includes its offsets; a stop before that would repeat more records.
- *The mirror is suspended (SIGSTOP) and other members get its partitions:* when the mirror resumes, it sends the
  records that it has read. The group refuses its commits for partitions that it no longer owns. Only exactly-once
  delivery prevents such repeated records.
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
from kafkapy.mirror.member import Member, NotCommitted, Piece
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.mirror.target_topics import TargetTopics
from kafkapy.record.rebatch import Rebatcher

log = logging.getLogger(__name__)

POLL_S = 0.5
BACKOFF_S = 0.2

T = TypeVar("T")


class AtLeastOnce:
    """One mirror stream with at-least-once delivery, for one thread.

    The stream also implements the callbacks of Listener, to commit before partitions are given up.
    """

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
        self._delivery = SafeDelivery(target, counts, abort=options.abort_on_send_failure)
        self._rebatcher = Rebatcher(
            codec=target.codec,
            batch_bytes=target.batch_bytes,
            by_number=options.keep_partitions,
            available=self._delivery.available_partitions,
        )
        self._read: dict[TopicPartition, int] = {}  # the offset after the records that were read, until it is committed
        self._flush_at = float("inf")  # when an incomplete batch has to be sent

    def open(self) -> None:
        """Join the source's group."""
        self._member.open(self)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Copy records until `stopped` returns True. Then flush and commit the records that were read.

        Raises errors that retries do not solve.
        """
        commit_at = time.monotonic() + self._options.commit_interval_s
        while not stopped():
            now = time.monotonic()
            pieces = self._member.poll(min(POLL_S, max(0.0, self._flush_at - now), max(0.0, commit_at - now)))
            self._counts.lags = self._member.lags()
            self._counts.waiting = self._member.waiting()
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
        """Leave the source's group and close the connections, without another commit."""
        self._read.clear()
        try:
            self._member.close()
        finally:
            self._delivery.close()
            self._topics.close()

    # The methods of the protocol Listener

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
        """Send the records of a Piece (fetched batches of one partition) to the target.

        Does nothing if the mirror is stopped while the target's topic is looked up.
        """
        topic, number = piece.where
        in_source = partial(self._member.partition_count, topic)
        count = with_retries(lambda: self._topics.partition_count(topic, in_source, number), stopped)
        if count is None:
            return  # the mirror is stopped, and the piece does not count as read
        self._delivery.send(self._rebatcher.feed(piece.where, piece.data, piece.start, count, aborted=piece.aborted))
        self._read[piece.where] = piece.after
        self._flush_at = min(self._flush_at, time.monotonic() + self._linger_s)

    def _flush(self) -> None:
        """Send all records that wait in incomplete batches, and wait until the target has acknowledged everything."""
        self._delivery.send(self._rebatcher.finish())
        self._delivery.flush()
        self._flush_at = float("inf")

    def _commit(self) -> None:
        """Flush, then commit to the source the offsets after the records that were read.

        A failed commit is counted and logged; the next commit includes its offsets.
        """
        if not self._read:
            return
        self._flush()
        try:
            self._member.commit(self._read)
        except NotCommitted as error:
            self._counts.failed_commits += 1
            log.info("%s; the next commit includes these offsets", error)
        else:
            self._counts.commits += 1
            self._read.clear()


def with_retries(work: Callable[[], T], stopped: Callable[[], bool]) -> T | None:
    """Return the result of `work`, which is called again while it raises retriable errors.

    Returns None if `stopped` returns True before `work` succeeds. Raises other errors of `work`. An error that repeats
    the one before it is not logged again.
    """
    logged = ""
    while not stopped():
        try:
            return work()
        except (ConnectionFailed, KafkaError) as error:
            if isinstance(error, KafkaError) and not is_retriable(error.code):
                raise
            if (problem := str(error)) != logged:
                log.info("retrying: %s", problem)
                logged = problem
        time.sleep(BACKOFF_S)
    return None
