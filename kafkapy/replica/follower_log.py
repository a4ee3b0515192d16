"""What the leader's responses do to a follower's log: appends, the high watermark, the log start, truncations.

Every change names the leader epoch in which this broker follows the partition; the log refuses it when a later epoch
has begun. Functions without `blocking` may wait for the disk. Source: ReplicaFetcherThread,
AbstractFetcherThread.fetchOffsetAndTruncate, Partition.appendRecordsToFollowerOrFutureReplica.
"""

from __future__ import annotations

import logging

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.follower import Followed, UnexpectedOffset
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.results import BUSY, Busy
from kafkapy.replica.fetched import FetchedPartition
from kafkapy.replica.followed_partition import FollowedPartition
from kafkapy.replica.truncation import UNDEFINED, EpochEnd, first_fetch_offset, truncation

log = logging.getLogger("kafkapy.replica.follower_log")


def needs_first_truncation(partition: FollowedPartition) -> bool:
    """Return True if the log must be truncated to its high watermark before the first fetch: a log without leader
    epochs, which cannot be compared with the leader's log.
    """
    return _first_offset(partition.log) < partition.log.end[0]


def truncate_first(partition: FollowedPartition, logs: LogManager) -> None:
    """Truncate a log without leader epochs to its high watermark. Raises the errors of LogManager.truncate_to."""
    logs.truncate_to(partition.log, _first_offset(partition.log), partition.leader_epoch)


def _first_offset(own: PartitionLog) -> int:
    return first_fetch_offset(own.leader_epochs.latest_epoch, own.end[0], own.high_watermark)


def take(
    partition: FollowedPartition, fetched: FetchedPartition, logs: LogManager, *, blocking: bool
) -> Followed | Busy:
    """Append the fetched records, and take over the leader's high watermark and log start offset.

    The records were fetched at the log's present end. Returns BUSY without any change if `blocking` is False and the
    call would have to wait for the disk. Raises KafkaError CORRUPT_MESSAGE, also if the first batch is cut off,
    NOT_LEADER_OR_FOLLOWER if a later epoch has begun, UnexpectedOffset, and LogDirFailure.
    """
    own, epoch = partition.log, partition.leader_epoch
    if fetched.log_start > own.log_start_offset and not blocking:
        return BUSY
    if fetched.records:
        done = _append(partition, fetched.records, logs, blocking)
        if isinstance(done, Busy):
            return BUSY
        if not done.size:
            raise KafkaError(
                Errors.CORRUPT_MESSAGE, f"the {len(fetched.records)} bytes at offset {done.end_offset} are not a batch"
            )
    else:
        done = Followed(0, own.end[0], False)
    moved = fetched.high_watermark >= 0 and own.follow_high_watermark(fetched.high_watermark, epoch)
    if min(fetched.log_start, own.high_watermark) > own.log_start_offset:
        own.follow_log_start(fetched.log_start, epoch)
        moved = True
    if moved:
        if own.watchers:
            own.notify_watchers()
        partition.on_change(partition)
    return done


def _append(partition: FollowedPartition, records: memoryview, logs: LogManager, blocking: bool) -> Followed | Busy:
    own, epoch, stall, before = partition.log, partition.leader_epoch, partition.stall, partition.log.end[0]
    if not blocking and stall.stalled and stall.lasts():
        return BUSY
    try:
        done = own.append_as_follower(records, epoch, blocking=blocking)
        if own.write_seconds > stall.threshold:
            stall.observe(own.write_seconds, len(records))
        return done
    except UnexpectedOffset as unexpected:
        first, end = unexpected.first_offset, own.end[0]
        if end != before or not first < end <= unexpected.last_offset:
            raise
        if not blocking:
            return BUSY
        # This log ends inside a batch of the leader's log, and the leader sends whole batches. An empty log can end
        # there after DeleteRecords, any log after a truncation to an offset inside a batch.
        log.info("%s is truncated from %d to %d, where a batch of the leader's log begins", own.name, end, first)
        if own.log_start_offset < end:
            _warn_below_high_watermark(partition, first)
        if own.log_start_offset <= first:
            logs.truncate_to(own, first, epoch)
        else:  # the log start offset then follows the leader's again
            logs.truncate_fully(own, first, epoch)
        return own.append_as_follower(records, epoch)


def truncate_diverging(partition: FollowedPartition, leader: EpochEnd, logs: LogManager) -> None:
    """Truncate the log after a response that says where the leader's log diverges from it. This may repeat (KIP-279).

    Raises the errors of LogManager.truncate_to.
    """
    own = partition.log
    epoch, end_offset = own.end_offset_for_epoch(leader.epoch)
    if end_offset == UNDEFINED:
        epoch = UNDEFINED
    offset, _ = truncation(leader, EpochEnd(epoch, end_offset), own.end[0])
    _warn_below_high_watermark(partition, offset)
    log.info(
        "%s is truncated from %d to %d: epoch %d ends at %d in the leader's log",
        own.name, own.end[0], offset, leader.epoch, leader.end_offset,
    )  # fmt: skip
    logs.truncate_to(own, offset, partition.leader_epoch)


def truncate_to_leader_end(partition: FollowedPartition, leader_end: int, logs: LogManager) -> bool:
    """Truncate a log that is longer than the leader's, which is possible after an unclean election.

    Return False if the log is not longer. Raises the errors of LogManager.truncate_to.
    """
    own = partition.log
    if leader_end >= own.end[0]:
        return False
    _warn_below_high_watermark(partition, leader_end)
    log.warning("%s is truncated from %d to %d, where the leader's log ends", own.name, own.end[0], leader_end)
    logs.truncate_to(own, leader_end, partition.leader_epoch)
    return True


def restart_at_leader_start(partition: FollowedPartition, leader_start: int, logs: LogManager) -> bool:
    """Empty the log if it ends before the leader's log starts, and begin at the leader's log start offset.

    Return False if the log does not end before that. Raises the errors of LogManager.truncate_to.
    """
    own = partition.log
    if leader_start <= own.end[0]:
        return False
    log.warning("%s ends at %d and is emptied: the leader's log starts at %d", own.name, own.end[0], leader_start)
    logs.truncate_fully(own, leader_start, partition.leader_epoch)
    return True


def _warn_below_high_watermark(partition: FollowedPartition, offset: int) -> None:
    own = partition.log
    if offset < own.high_watermark:
        log.warning("%s is truncated to %d, below its high watermark %d", own.name, offset, own.high_watermark)
