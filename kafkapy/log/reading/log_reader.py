"""Read a log by offset, without a lock (Kafka's LocalLog.read and LogSegment.read).

The position of a batch is found through the segment's offset index and then by scanning headers in the file. A read at
the end of the log needs neither, because SegmentList caches the positions of the last appends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy._ext.segment_scan import CorruptSegment
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.results import ReadResult
from kafkapy.log.segments.segment import Segment
from kafkapy.log.segments.segment_list import SegmentList
from kafkapy.record.file_region import FileRegion

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def read(
    log: PartitionLog, offset: int, max_bytes: int, min_one: bool, cut: bool, max_offset: int, nowait: bool
) -> ReadResult:
    """Return the result of PartitionLog.read, which describes the parameters and errors.

    `nowait` is the opposite of `blocking`. Also raises OSError of the file operations, and with `nowait`
    BlockingIOError if it would have to wait for the disk.
    """
    segments, (end_offset, active, end_position) = log.snapshot()
    if offset < log.log_start_offset or offset > end_offset:
        raise KafkaError(
            Errors.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not in {log.name}, which has {log.log_start_offset} to {end_offset}",
        )
    if offset >= max_offset:
        return ReadResult(None, offset)
    if max_offset >= end_offset:
        last, limit = active, end_position
    else:
        place = segments.position(max_offset)
        if place is None:
            found = _find(log, segments, max_offset, active, end_position, nowait)
            segments.remember(max_offset, place := found[:2])
        last, limit = place
    first_size = None
    place = segments.position(offset)
    if place is not None:
        segment, position = place
    else:
        segment, position, first_size = _find(log, segments, offset, last, limit, nowait)
        if first_size == 0:
            return ReadResult(None, offset)
    end = limit if segment is last else segment.size
    if end <= position:
        return ReadResult(None, offset, segment.base_offset, position)
    length = end - position
    if cut:
        length = min(length, max_bytes)
        if length <= 0:
            return ReadResult(None, offset, segment.base_offset, position, True)
    elif length > max_bytes:
        if first_size is None:
            first = segment.files.locate(segment.handle(nowait), position, end, offset, nowait)
            first_size = first[1] if first is not None else 0
        if first_size > max_bytes:
            if not min_one:
                return ReadResult(None, offset, segment.base_offset, position, True)
            length = first_size
        else:
            length = max_bytes
    return ReadResult(FileRegion(segment.handle(nowait), position, length), offset, segment.base_offset, position)


def _find(
    log: PartitionLog, segments: SegmentList, offset: int, last: Segment, limit: int, nowait: bool
) -> tuple[Segment, int, int]:
    """Return (segment, position, size) of the first batch that contains `offset` or a later offset.

    `last` is the last segment to search, up to byte `limit`. The size is 0 if there is no such batch.
    """
    at = segments.floor(offset)
    if at < 0:
        raise KafkaError(Errors.OFFSET_OUT_OF_RANGE, f"offset {offset} lies before the segments of {log.name}")
    for segment in segments.from_(at):
        end = limit if segment is last else segment.size
        found = locate(log, segment, offset, end, nowait)
        if found is not None:
            return segment, found[0], found[1]
        if segment is last:
            break
    return last, limit, 0


def locate(log: PartitionLog, segment: Segment, offset: int, end: int, nowait: bool) -> tuple[int, int, int] | None:
    """Return (position, size, base offset) of the segment's first batch that ends at `offset` or later, or None.

    Only batches before byte `end` count. If the index is wrong, the batch is searched from the start of the segment.
    Raises KafkaError CORRUPT_MESSAGE for a damaged segment, OSError, and BlockingIOError as Segment.locate does.
    """
    try:
        return segment.locate(offset, end, nowait)
    except CorruptSegment as reason:
        _log.warning("%s: the index is wrong for offset %d: %s; searching from the start", segment, offset, reason)
    try:
        return segment.files.locate(segment.handle(nowait), 0, end, offset, nowait)
    except CorruptSegment as reason:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"{segment.handle().path} of {log.name}: {reason}") from None


def aborted_transactions(log: PartitionLog, offset: int, read: ReadResult, nowait: bool) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of each aborted transaction in the region that was read at `offset`.

    `read` is the result of that read. See PartitionLog.aborted_transactions. Source: Kafka's
    LocalLog.addAbortedTransactions.
    """
    segments = log.segments
    later = tuple(segments.from_(max(segments.floor(read.segment_base), 0)))
    found: list[tuple[int, int]] = []
    if read.region is None or not any(map(_has_aborted, later)):
        return found
    end_of_log = log.end[0]
    upper = later[0].offset_index.offset_after(read.position + read.region.length, nowait)
    if upper is None:
        upper = later[1].base_offset if len(later) > 1 else end_of_log
    for segment in later:
        if segment.txn_index.overlapping(offset, upper, found):
            break
    return found


def _has_aborted(segment: Segment) -> int:
    return len(segment.txn_index)
