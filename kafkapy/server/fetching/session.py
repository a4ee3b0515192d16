"""One incremental fetch session (KIP-227) of a consumer or of a follower: its partitions, the offsets last sent for
them, and those that may have changed.

Source: kafka.server.FetchSession. In every fetch, Kafka reads every partition of the session. Here a fetch reads only
the partitions that it names or that have changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.replica.hosted_partition import READ_COMMITTED, READ_TO_LOG_END

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog
    from kafkapy.replica.hosted_partition import HostedPartition

INITIAL_EPOCH = 0

_TURN = attrgetter("turn")

Key = tuple[Any, int]  # topic id (from Fetch version 13 on) or topic name, and partition


class FetchPartition:
    """One partition of a fetch: the fetch offset and limits of the consumer or follower, and the high watermark and log
    start offset that were last sent to it. `log_start_offset` is that of a follower's log."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "session",
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
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.session: FetchSession | None = None
        self.turn = 0  # partitions of a session are read in the order of their turns
        # The partition of this broker that was found last, by a fetch in a session. Until it is gone, the next fetch
        # need not look it up.
        self.partition: HostedPartition | None = None
        self.watched: PartitionLog | None = None  # the log that marks this partition as changed

    def key(self, uses_topic_ids: bool) -> Key:
        """Return the key of this partition in a session: (topic id or topic name, partition index)."""
        return (self.topic_id if uses_topic_ids else self.topic, self.index)

    def update(self, asked: FetchPartition) -> None:
        """Set the fetch offset and the limits to those in `asked`, from a new request. The offsets that were last sent
        are kept."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset

    def news(self, read: Any) -> bool:
        """Return True if an incremental response must include this partition, given the result `read` of reading it: it
        has records, an error, a diverging epoch, a preferred replica, or another high watermark or log start offset
        than the last response. The two offsets are stored as sent."""
        has_records = read.records is not None and read.records.length > 0
        must = has_records or read.diverging is not None or read.preferred >= 0
        if self.sent_high_watermark != read.high_watermark:
            self.sent_high_watermark = read.high_watermark
            must = True
        if self.sent_log_start != read.log_start_offset:
            self.sent_log_start = read.log_start_offset
            must = True
        if read.error_code != Errors.NONE:
            self.sent_high_watermark = -1  # so that the next response includes this partition
            must = True
        return must

    def is_news(self, read: Any) -> bool:
        """Return the same as `news`, without storing anything as sent."""
        return bool(
            (read.records is not None and read.records.length > 0)
            or read.diverging is not None
            or read.preferred >= 0
            or self.sent_high_watermark != read.high_watermark
            or self.sent_log_start != read.log_start_offset
            or read.error_code != Errors.NONE
        )

    def has_nothing_to_send(self, read: Any, isolation: int | None) -> bool:
        """Return True if, after the result `read`, this partition has nothing to send until its log or the request
        changes."""
        if read.error_code != Errors.NONE or read.diverging is not None or read.preferred >= 0:
            return False
        end: int
        if isolation == READ_TO_LOG_END:
            end = read.log_end_offset
        else:
            end = read.last_stable_offset if isolation == READ_COMMITTED else read.high_watermark
        return self.fetch_offset >= end

    def changed(self) -> None:
        """Mark the partition in its session as changed, and wake the waiting fetch of a consumer's session. Called when
        the high watermark, the last stable offset or the log start offset has changed. See FetchSession for the races.

        A follower gets the new high watermark with its next response, but its fetch waits on, as in Kafka.
        """
        session = self.session
        if session is not None:
            session.marked.add(self)
            if not session.is_follower:
                session.wake(session)

    def end_moved(self) -> None:
        """Mark the partition in a follower's session as changed, and wake the session's waiting fetch. Called when the
        log end offset has changed."""
        session = self.session
        if session is not None:
            session.marked.add(self)
            session.wake(session)


class FetchSession:
    """The partitions of a fetch session. A fetch reads only the partitions in `due`, those that may have something to
    send.

    Due partitions are read in the order of their turns. A partition that has sent records gets the last turn, so that
    all partitions are read in turn.

    A partition becomes due when it is added, when a request names it, and when its log changes, which adds the
    partition to `marked`. It stays due as long as a response leaves something to send: an error, or records below the
    end offset that the consumer may read. The first incremental fetch, and a change of the isolation level or of the
    reader's access rights, make all partitions due.

    No change of a log may be lost in a race. These are the races.

    A change during a fetch: the log is watched before it is read. The changing thread makes the change, then adds the
    partition to `marked`, then calls `wake`. The fetching thread empties `marked` (`take`), then reads. The response
    removes a partition from `due` because of what was read, not because of the log's state when the response is made.
    So the read sees a change that was made before it. A change after the read adds the partition to `marked` after
    `marked` was emptied, and the partition is due in the next fetch.

    Adding to `marked` and emptying it: partitions are added to one set without a lock, and removed from the set one by
    one. Replacing the set would lose the partition that a thread adds when it has just loaded the reference to the old
    set.

    A change before the fetch waits: the fetch is tested again after it is in the purgatory (see Purgatory.watch). The
    test sees a partition that was marked before it. A partition that is marked after the test is followed by a call of
    `wake`, which finds the fetch in the purgatory.

    A test during the response: partitions that a waiting fetch has taken from `marked` stay due until its response. The
    time-out may complete the fetch while another thread still tests it. That thread could take a partition that was
    marked after the read for the response; the response would then remove the partition from `due`, and the change
    would be lost. So the fetch takes nothing from `marked` after `due_now(to_answer=True)`, which precedes that read.

    Another request continues the session: all partitions that the waiting fetch has taken from `marked` are due for the
    request. The waiting fetch takes nothing from `marked` any more, and removes nothing from `due`.
    """

    __slots__ = (
        "_turns",
        "closed",
        "created",
        "due",
        "epoch",
        "id",
        "is_follower",
        "isolation",
        "last_used",
        "lock",
        "marked",
        "partitions",
        "principal",
        "read_all_at",
        "rights",
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
        is_follower: bool = False,
    ) -> None:
        self.id = session_id
        self.partitions: dict[Key, FetchPartition] = {}
        self.uses_topic_ids = uses_topic_ids
        self.epoch = INITIAL_EPOCH + 1
        self.is_follower = is_follower
        self.principal = ""  # who has created the session
        self.isolation: int | None = None  # of the last fetch
        self.read_all_at = now  # the last time at which a fetch read all partitions
        self.rights: Hashable = None
        self.lock = threading.Lock()  # protects all but `marked`; acquired after the cache's lock, never before
        self.due: set[FetchPartition] = set()
        self.marked: set[FetchPartition] = set()
        self.wake = wake
        self.closed = False
        self.created = now
        self.last_used = now
        self._turns = 0
        for key, asked in partitions.items():
            self.add(key, asked)

    # The methods from here to `take_until_news` are called with the lock held:

    def add(self, key: Key, asked: FetchPartition) -> None:
        """Add a partition to the session, or update the partition if the session has it. In both cases the next fetch
        reads it."""
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = asked
            asked.session = self
            self.to_the_end(asked)
        else:
            known.update(asked)
        self.due.add(known)

    def forget(self, key: Key) -> None:
        """Remove a partition from the session. Nothing is done if the session does not have it."""
        asked = self.partitions.pop(key, None)
        if asked is not None:
            self.due.discard(asked)
            _leave(asked)

    def close(self) -> None:
        """End the session: the logs no longer mark its partitions as changed."""
        self.closed = True
        for asked in self.partitions.values():
            _leave(asked)

    def to_the_end(self, asked: FetchPartition) -> None:
        """Give the partition the last turn, so that the next fetch reads it after all other partitions."""
        self._turns += 1
        asked.turn = self._turns

    def take(self) -> list[FetchPartition]:
        """Add the partitions that logs have marked as changed to `due`. Return all partitions in `due`, in the order of
        their turns."""
        marked, due = self.marked, self.due
        while marked:
            asked = marked.pop()
            if asked.session is self:  # otherwise it was removed after it was marked
                due.add(asked)
        return sorted(due, key=_TURN)

    def take_until_news(self) -> bool:
        """Add the partitions that logs have marked as changed to `due`, up to the first one that has something to send.
        Return True if there is one.

        For followers, which read up to the log end offset. They are not woken for a high watermark alone.
        """
        marked, due = self.marked, self.due
        while marked:
            asked = marked.pop()
            if asked.session is self:
                due.add(asked)
                partition = asked.partition
                if partition is None or partition.gone is not None or partition.log.end[0] != asked.fetch_offset:
                    return True
        return False

    # This is called without the lock:

    def watch(self, asked: FetchPartition, log: PartitionLog) -> None:
        """Let `log` mark the partition as changed when the log changes. Nothing is done if the partition has been
        removed from the session in the meantime."""
        with self.lock:
            if asked.session is self:
                _watch(asked, log)


def _watch(asked: FetchPartition, log: PartitionLog | None) -> None:
    before, asked.watched = asked.watched, log
    if before is not None:
        before.watchers.pop(asked, None)
        before.end_watchers.pop(asked, None)
    if log is not None:
        log.watchers[asked] = None
        if asked.session is not None and asked.session.is_follower:
            log.end_watchers[asked] = None


def _leave(asked: FetchPartition) -> None:
    asked.session = None
    _watch(asked, None)
