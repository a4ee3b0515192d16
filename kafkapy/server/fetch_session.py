"""One incremental fetch session (KIP-227): what a consumer asks for, what it was told, and what may be news to it.

Source: kafka.server.FetchSession. Kafka looks at every partition of a session at every fetch. Here a fetch costs what
it names and what has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.replica.partition import READ_COMMITTED

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

INITIAL_EPOCH = 0

_TURN = attrgetter("turn")

Key = tuple[Any, int]  # (topic id from Fetch v13 on, topic name before) and partition


class FetchPartition:
    """What a consumer wants of one partition, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic",
        "topic_id",
        "turn",
        "watched",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.session: FetchSession | None = None
        self.turn = 0  # the place among those of the session
        self.watched: PartitionLog | None = None

    def key(self, uses_topic_ids: bool) -> Key:
        """What a session knows it by."""
        return (self.topic_id if uses_topic_ids else self.topic, self.index)

    def update(self, asked: FetchPartition) -> None:
        """Takes over what the consumer asks now; what it was told stays."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def news(self, read: Any) -> bool:
        """Whether `read` must be in an incremental response; remembers what the consumer is told by it."""
        must = bool(read.records is not None and len(read.records) > 0) or read.diverging is not None
        if self.told_high_watermark != read.high_watermark:
            self.told_high_watermark = read.high_watermark
            must = True
        if self.told_log_start != read.log_start_offset:
            self.told_log_start = read.log_start_offset
            must = True
        if read.error_code != Errors.NONE:
            self.told_high_watermark = -1  # the first answer after the error is news again
            must = True
        return must

    def is_settled(self, read: Any, isolation: int) -> bool:
        """Whether after `read` there is nothing to tell until the log changes or something else is asked."""
        if read.error_code != Errors.NONE or read.diverging is not None:
            return False
        end: int = read.last_stable_offset if isolation == READ_COMMITTED else read.high_watermark
        return self.fetch_offset >= end

    def changed(self) -> None:
        """The log that it watches has changed: see FetchSession."""
        session = self.session
        if session is not None:
            session.marked.add(self)
            session.wake(session)


class FetchSession:
    """The partitions of a consumer. A fetch looks only at those that are `due`: that may have something to tell.

    They are read in the order of their turns; one with data gets the last, so that all get theirs.

    A partition is due when it joins, when a request names it, when its log has changed (it is `marked`), and as long
    as an answer leaves something to say: an error, or records up to where the consumer may read. With the first fetch,
    and when the isolation level changes, all are.

    Nothing is missed between the look at a partition and the mark that its log has changed. The log is watched before
    the look. Who changes it changes it first, then marks the partition and then wakes the fetch that waits. Who looks
    takes the marks first (`take`), then looks, and at the answer what was seen to have nothing more is no longer due,
    by what was seen then, not by what is so now. A change after the look is marked after the look, and that mark is
    not taken by it: the partition is due at the next one. Marks are added to one and the same set without a lock, and
    taken out one by one; to replace the set would lose the mark of a thread that has just got hold of the old one.
    A fetch that is going to wait is asked again once it is watched for (see Purgatory): a mark before that is seen by
    it, and one after that finds the fetch. What a waiting fetch takes stays due until its answer is given. After the
    look for the answer it takes nothing: a thread may still be asking whether the fetch can end, while its time-out has
    ended it, and would take a mark that is later than that look. Where another request takes the session on meanwhile,
    it finds all that due, and the one before takes nothing any more and makes nothing undue.
    """

    __slots__ = (
        "_turns",
        "closed",
        "created",
        "due",
        "epoch",
        "id",
        "isolation",
        "last_used",
        "lock",
        "marked",
        "partitions",
        "uses_topic_ids",
        "wake",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, FetchPartition],
        uses_topic_ids: bool,
        now: float,
        wake: Callable[[FetchSession], object],
    ) -> None:
        self.id = session_id
        self.partitions: dict[Key, FetchPartition] = {}
        self.uses_topic_ids = uses_topic_ids
        self.epoch = INITIAL_EPOCH + 1
        self.isolation = -1
        self.lock = threading.Lock()  # of all but `marked`; taken after the cache's, where both are
        self.due: set[FetchPartition] = set()
        self.marked: set[FetchPartition] = set()
        self.wake = wake
        self.closed = False
        self.created = now
        self.last_used = now
        self._turns = 0
        for key, asked in partitions.items():
            self.add(key, asked)

    # With the lock held:

    def add(self, key: Key, asked: FetchPartition) -> None:
        """Takes a partition in, or takes over what is asked of it now."""
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = asked
            asked.session = self
            self.to_the_end(asked)
        else:
            known.update(asked)
        self.due.add(known)

    def forget(self, key: Key) -> None:
        """Leaves a partition out from now on, if it is there."""
        asked = self.partitions.pop(key, None)
        if asked is not None:
            self.due.discard(asked)
            _leave(asked)

    def close(self) -> None:
        """The end: no log marks anything here any more."""
        self.closed = True
        for asked in self.partitions.values():
            _leave(asked)

    def to_the_end(self, asked: FetchPartition) -> None:
        """Gives it the last turn."""
        self._turns += 1
        asked.turn = self._turns

    def take(self) -> list[FetchPartition]:
        """What is due by now."""
        marked, due = self.marked, self.due
        while marked:
            asked = marked.pop()
            if asked.session is self:  # else it was forgotten
                due.add(asked)
        return sorted(due, key=_TURN)

    # Without:

    def watch(self, asked: FetchPartition, log: PartitionLog) -> None:
        """Has `log` mark the partition when it changes; unless the session was left meanwhile."""
        with self.lock:
            if asked.session is self:
                _watch(asked, log)


def _watch(asked: FetchPartition, log: PartitionLog | None) -> None:
    before, asked.watched = asked.watched, log
    if before is not None:
        before.watchers.pop(asked, None)
    if log is not None:
        log.watchers[asked] = None


def _leave(asked: FetchPartition) -> None:
    asked.session = None
    _watch(asked, None)
