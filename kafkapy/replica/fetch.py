"""Read several partitions for one Fetch request, or delay the fetch until there are enough records.

Source: kafka.server.ReplicaManager.readFromLog and DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.results import Busy
from kafkapy.network.pieces import Pieces
from kafkapy.network.replies import Pending
from kafkapy.record.file_region import FileRegion
from kafkapy.replica.hosted_partition import READ_COMMITTED, READ_TO_LOG_END, HostedPartition
from kafkapy.replica.partition import Partition
from kafkapy.replica.shared_read import MOST_BYTES, KeptRecords, SharedRead
from kafkapy.replica.throttles import Throttle
from kafkapy.replica.truncation import EpochEnd, divergence
from kafkapy.runtime.purgatory import DelayedOperation

Wanted = Sequence[tuple[HostedPartition | KafkaError, Any]]


class FetchRead:
    """The result of a Fetch request for one partition. After most errors the offsets are -1, as in Kafka's
    responses.

    `log_end_offset` is the log end offset before the records were read, only for followers. `preferred` is the broker
    that the consumer should fetch from instead of this one, -1 if there is none.
    """

    __slots__ = (
        "aborted",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "preferred",
        "records",
    )

    def __init__(
        self,
        error_code: int = Errors.NONE,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: FileRegion | KeptRecords | Pieces | None = None,
        aborted: list[tuple[int, int]] | None = None,
        diverging: tuple[int, int] | None = None,
        log_end_offset: int = -1,
        preferred: int = -1,
    ) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted = aborted
        self.diverging = diverging
        self.log_end_offset = log_end_offset
        self.preferred = preferred


class FetchPlan:
    """One Fetch request: its partitions and its limits.

    `wanted` has, in the order of the request, pairs of a partition (or a KafkaError in place of it) and its
    FetchPartition. If `cut` is True, the byte limits also hold for the first batch, which is cut at the limit;
    otherwise the first batch is returned whole. `look` is for fetch sessions, whose partitions may change while the
    fetch waits: it returns the present `wanted`, an empty sequence if nothing has changed since the last call, or None
    if the wait is over. `follower` is the id of the broker that fetches as a follower, None for a consumer.
    `choose(partition, fetch_offset)` returns the id of the broker that the consumer should fetch from, None for this
    one. `throttle` limits what followers get that are not in sync, None if no partition is throttled. `has_news` is for
    the sessions of followers: it returns True if any partition that has changed since the last call has something to
    send.
    """

    __slots__ = (
        "_arrived",
        "blocked",
        "choose",
        "cut",
        "follower",
        "has_news",
        "isolation",
        "look",
        "max_bytes",
        "min_bytes",
        "throttle",
        "wanted",
    )

    def __init__(
        self,
        wanted: Wanted,
        *,
        min_bytes: int,
        max_bytes: int,
        isolation: int,
        cut: bool = False,
        follower: int | None = None,
    ) -> None:
        self.look: Callable[[], Wanted | None] | None = None
        self.has_news: Callable[[], bool] | None = None
        self.throttle: Throttle | None = None
        self.choose: Callable[[Partition, int], int | None] | None = None
        self.follower = follower
        self._arrived = follower is not None  # the partitions do not know of the follower's fetch yet
        self.wanted = wanted
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation if follower is None else READ_TO_LOG_END
        self.cut = cut
        self.blocked: HostedPartition | None = None  # the partition whose read would have had to wait for the disk

    def read(
        self, *, blocking: bool, busy_is_empty: bool = False, shared: SharedRead | None = None
    ) -> tuple[list[FetchRead], int, bool] | None:
        """Read the partitions; return (a FetchRead for each, the number of bytes in total, whether to respond without
        waiting).

        After an error or a divergence, and to name another replica, the response must be sent without waiting. If a
        read would have to wait for the disk and `blocking` is False, the result is None: the caller calls `read` again
        on a thread that may wait. With `busy_is_empty` such a partition gets no records instead, and the client fetches
        again. With `shared`, small results are shared with other consumers.
        """
        if self.follower is not None or self.choose is not None:
            shared = None
        reads = []
        left, total, urgent, min_one = self.max_bytes, 0, False, not self.cut
        for partition, asked in self.wanted:
            if shared is None or total >= MOST_BYTES:  # no more than about 8 KiB of a response are held in memory
                read = self._read_one(partition, asked, left, min_one, blocking)
            else:
                read = self._read_shared(shared, partition, asked, left, min_one, blocking)
            if read is None:
                assert isinstance(partition, HostedPartition)
                if not busy_is_empty:
                    self.blocked = partition
                    return None
                log = partition.log
                read = FetchRead(
                    Errors.NONE,
                    log.high_watermark,
                    log.last_stable_offset,
                    log.log_start_offset,
                    log_end_offset=log.log_end_offset,
                )
            reads.append(read)
            if read.records is not None:
                size = read.records.length
                if size:
                    min_one = False
                total += size
                left = max(0, left - size)
            elif read.error_code or read.diverging is not None or read.preferred >= 0:
                urgent = True
        self._arrived = False
        return reads, total, urgent

    def _read_shared(
        self,
        shared: SharedRead,
        partition: HostedPartition | KafkaError,
        asked: Any,
        left: int,
        min_one: bool,
        blocking: bool,
    ) -> FetchRead | None:
        """Return the result of `_read_one`, which another consumer may have read."""
        if isinstance(partition, KafkaError) or partition.gone is not None:
            return self._read_one(partition, asked, left, min_one, blocking)
        log = partition.log
        end = log.end
        key = (
            partition,
            log.segments,
            log.log_start_offset,
            log.high_watermark,
            log.last_stable_offset,
            self.isolation,
            self.cut,
            left,
            min_one,
            asked.fetch_offset,
            asked.max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
        )
        read = shared.find(log, key)
        if read is None:
            read = self._read_one(partition, asked, left, min_one, blocking)
            if read is not None:
                shared.keep(end, key, read)
        return read

    def _read_one(
        self, partition: HostedPartition | KafkaError, asked: Any, left: int, min_one: bool, blocking: bool
    ) -> FetchRead | None:
        if isinstance(partition, KafkaError):
            return FetchRead(partition.code)
        log = partition.log
        log_end, offset = -1, asked.fetch_offset
        region: FileRegion | None = None
        aborted: list[tuple[int, int]] | None = None
        try:
            epoch = asked.current_leader_epoch
            if 0 <= epoch != partition.leader_epoch or partition.gone is not None:
                partition.check_epoch(epoch)
            if self.follower is not None:
                assert isinstance(partition, Partition)
                partition.check_replica(self.follower, epoch)
                log_end = log.end[0]  # before the read, so that later appends do not make the follower late
            if self.choose is not None and isinstance(partition, Partition):
                preferred = self.choose(partition, offset)
                if preferred is not None:
                    return _without_records(log, preferred=preferred)
            # Nothing diverges if the reader's last epoch is the latest one, which ends at the log's end.
            if asked.last_fetched_epoch >= 0 and (
                offset > log.end[0] or asked.last_fetched_epoch != log.leader_epochs.latest_epoch
            ):
                diverging = _divergence(partition, asked)
                if diverging is not None:
                    return _without_records(log, diverging=diverging)
            end = partition.end_offset(self.isolation)
            if offset == end:  # the reader has everything
                aborted = [] if self.isolation == READ_COMMITTED else None
            else:
                read = self._read_log(log, asked, end, left, min_one, blocking)
                if read is None:
                    return None
                region, aborted = read
                # If this role has ended during the read, the log may have been truncated, and the region may hold
                # other records.
                if partition.gone is not None:
                    partition.check_there()
            if self._arrived:
                assert isinstance(partition, Partition)
                assert self.follower is not None
                partition.follower_fetched(self.follower, offset, asked.log_start_offset, log_end)
            if self.throttle is not None and self.holds_back(partition):
                region = None
        except KafkaError as error:
            if error.code == Errors.OFFSET_OUT_OF_RANGE:
                return _without_records(log, error.code)
            return FetchRead(error.code)
        return FetchRead(
            Errors.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            region,
            aborted,
            None,
            log_end,
        )

    def holds_back(self, partition: HostedPartition) -> bool:
        """Return True if the follower gets no records of the partition now, because a throttle's limit is exceeded. A
        follower that is in sync is never throttled: it would leave the ISR (KIP-73).
        """
        throttle = self.throttle
        return (
            throttle is not None
            and isinstance(partition, Partition)
            and self.follower not in partition.isr
            and throttle.is_throttled(partition.topic, partition.index)
            and throttle.is_exceeded()
        )

    def _read_log(
        self, log: PartitionLog, asked: Any, end: int, left: int, min_one: bool, blocking: bool
    ) -> tuple[FileRegion | None, list[tuple[int, int]] | None] | None:
        """Return (records, aborted transactions among the records) of one partition, up to the offset `end`; the
        transactions only with read_committed.

        Return None if the read would have to wait for the disk and `blocking` is False. Raises KafkaError.
        """
        while True:
            segments, limit = log.segments, asked.max_bytes
            result = log.read(
                asked.fetch_offset,
                limit if limit < left else left,
                min_one=min_one,
                cut=self.cut,
                max_offset=end,
                blocking=blocking,
            )
            if isinstance(result, Busy):
                return None
            region = result.region
            if self.isolation != READ_COMMITTED:
                return region, None
            aborted = log.aborted_transactions(asked.fetch_offset, result, blocking=blocking)
            if isinstance(aborted, Busy):
                return None
            # Retention or the cleaner may remove a segment between the read and the look-up of aborted transactions, or
            # the log may move to another directory, where its segments may begin at other offsets.
            # The segment's list of aborted transactions is gone then, but the region still has its records, and the
            # client would take the aborted ones for committed. So both are read again if the segments have changed.
            if log.segments is segments:
                return region, aborted


def _without_records(
    log: PartitionLog,
    error_code: int = Errors.NONE,
    *,
    diverging: tuple[int, int] | None = None,
    preferred: int = -1,
) -> FetchRead:
    """Return a result without records: the offsets of a partition, with an error, the point from which the reader's log
    diverges, or the broker that the reader should fetch from instead."""
    return FetchRead(
        error_code,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        diverging=diverging,
        preferred=preferred,
    )


def _divergence(partition: HostedPartition, asked: Any) -> tuple[int, int] | None:
    """Return (epoch, end offset) where the log of the follower diverges from this log, else None (KIP-595). A consumer
    can ask this too, about the records that it has read.

    The logs diverge if the follower's last fetched epoch ends, in this log, before the follower's fetch offset.
    Raises KafkaError OFFSET_OUT_OF_RANGE if this leader's log has no epoch up to that epoch, or begins after the fetch
    offset, because then it is not known where the logs diverge.
    """
    if asked.fetch_offset < partition.log.log_start_offset:
        raise KafkaError(Errors.OFFSET_OUT_OF_RANGE, f"offset {asked.fetch_offset} is below the start of {partition}")
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(
            Errors.OFFSET_OUT_OF_RANGE, f"epoch {asked.last_fetched_epoch} is not in the log of {partition}"
        )
    return divergence(EpochEnd(epoch, end_offset), asked.last_fetched_epoch, asked.fetch_offset)


class DelayedFetch(DelayedOperation):
    """A Fetch request that waits until there are `min_bytes`, a partition has an error, or its max wait time has
    passed.

    At the first check after its connection was closed, the fetch is complete, and needs no response. Subclasses define
    `on_complete`, which sends the response, on the thread that completes the fetch.
    """

    __slots__ = ("plan", "reply")

    def __init__(self, plan: FetchPlan, reply: Pending) -> None:
        super().__init__()
        self.plan = plan
        self.reply = reply

    def try_complete(self) -> bool:
        plan = self.plan
        if self.reply.cancelled:
            return True
        if plan.has_news is not None and plan.min_bytes <= 1 and plan.throttle is None:
            return plan.has_news()
        # Not kept in `plan.wanted`: a time-out may call `on_complete` on another thread at the same time, and that
        # replaces `plan.wanted` for the response.
        wanted = plan.wanted if plan.look is None else plan.look()
        if wanted is None:
            return True
        available = 0
        for partition, asked in wanted:
            if isinstance(partition, KafkaError) or partition.gone is not None:
                return True
            if partition.end_offset(plan.isolation) <= asked.fetch_offset:
                # A read_committed consumer whose position is after the last stable offset waits. A position after the
                # end of the log is an error, which the response reports.
                if asked.fetch_offset > partition.log.end[0]:
                    return True
                continue
            if plan.throttle is not None and plan.holds_back(partition):
                continue  # else the leader and the follower would exchange empty responses without a pause
            if plan.min_bytes <= 1 or asked.fetch_offset < partition.log.log_start_offset:
                return True
            try:
                result = partition.read(
                    asked.fetch_offset,
                    asked.max_bytes,
                    plan.isolation,
                    min_one=not plan.cut,
                    cut=plan.cut,
                    blocking=False,
                )
            except KafkaError:
                return True  # the response reports the error
            if isinstance(result, Busy):
                return True  # the reader is far behind, so there are enough bytes
            if result.region is not None:
                available += result.region.length
            if available >= plan.min_bytes:
                return True
        return False
