"""Copy the records of a log to its future log, a piece at a time, with their offsets and leader epochs.

Source: the fetch loop of Kafka's ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

import struct

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.follower import UnexpectedOffset
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.results import Busy

_FIRST_OFFSET = struct.Struct(">q")

ANY_EPOCH = (1 << 31) - 1  # later than every leader epoch: a future log takes what is in the log

_MORE = -1


def copy_piece(log: PartitionLog, future: PartitionLog, max_bytes: int) -> int | None:
    """Append the next batches of `log`, about `max_bytes`, to `future`; return their size, None if there are no more.

    The caller holds the future log's `upkeep`, so that neither log is truncated meanwhile. Waits for both disks. Raises
    KafkaError CORRUPT_MESSAGE for damage in the log, UNKNOWN_TOPIC_OR_PARTITION if one of the logs was closed,
    LogDirFailure, or a Shortage.
    """
    copied = _MORE
    while copied == _MORE:
        copied = _try_to_copy(log, future, max_bytes)
    _follow_offsets(log, future)
    return None if copied == 0 and future.end[0] >= log.end[0] else copied


def _try_to_copy(log: PartitionLog, future: PartitionLog, max_bytes: int) -> int:
    """Copy a piece and return its size, _MORE if the log start offset has moved and the caller must try again."""
    start, end = log.log_start_offset, log.end[0]
    if future.end[0] >= end:
        return 0
    offset = max(future.end[0], start)
    try:
        found = log.read(offset, max_bytes, min_one=True, max_offset=end)
    except KafkaError as error:
        if error.code == Errors.OFFSET_OUT_OF_RANGE and log.log_start_offset > offset:
            return _MORE
        raise
    assert not isinstance(found, Busy)
    if found.region is None:  # there is no batch between the two offsets, as after a cleaning
        future.changed("rolling", lambda: future.roll_locked(end))
        return 0
    data = found.region.read()
    (first_offset,) = _FIRST_OFFSET.unpack_from(data)
    if future.end[0] < start and future.end[0] != first_offset:  # retention was faster than the copy
        future.truncate_fully(first_offset)
    try:
        followed = future.append_as_follower(memoryview(data), ANY_EPOCH)
        assert not isinstance(followed, Busy)
        return followed.size
    except UnexpectedOffset as error:
        if future.log_start_offset < offset:
            raise KafkaError(Errors.CORRUPT_MESSAGE, str(error)) from error
        # The log start offset is inside a batch, as DeleteRecords may leave it, and the future log begins there.
        future.truncate_fully(error.first_offset)
        return _MORE


def _follow_offsets(log: PartitionLog, future: PartitionLog) -> None:
    """Move the high watermark and the log start offset of the future log to those of the log."""
    end = future.end[0]
    future.advance_high_watermark(min(log.high_watermark, end), ANY_EPOCH)
    start = min(log.log_start_offset, end)
    if future.log_start_offset < start:
        future.changed("moving the start of", lambda: future.move_start_locked(start))
