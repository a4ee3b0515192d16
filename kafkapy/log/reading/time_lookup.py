"""Find a record by its timestamp (Kafka's UnifiedLog.fetchOffsetByTimestamp). May wait for the disk.

Messages of format 0 have no timestamps and are skipped; a topic of that format is not searched at all.

Records may be appended during a search. An append writes its records, then updates the segment's size, the largest
timestamp and the index entries, and moves the log's end last. A search reads in the opposite order: first the indexes,
then the segment's size, so no index entry is beyond that size. A search may find a record beyond the log's end or the
high watermark, which the caller must ignore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy._ext.entries import read_entry
from kafkapy.log.results import TimestampOffset
from kafkapy.log.segments.segment import Segment
from kafkapy.record.batch import find_timestamp

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

# Special timestamps of ListOffsets.
LATEST = -1
EARLIEST = -2


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """Return the first record, in offset order from the log start offset, with this timestamp (ms) or a later one.

    Return None if there is none. As in Kafka, only the first segment whose largest timestamp is not below `timestamp`
    is searched. Raises OSError, and ValueError for a damaged segment.
    """
    start = log.log_start_offset
    segments = log.segments
    for segment in segments.from_(max(segments.floor(start), 0)):
        if segment.largest_timestamp() >= timestamp:
            _, offset = segment.time_index.lookup(timestamp)
            return _search(segment, max(offset, start), timestamp, start)
    return None


def offsets_before(log: PartitionLog, timestamp: int, count: int) -> list[int]:
    """Return at most `count` base offsets, newest first, of segments last written at `timestamp` (ms) or before.

    Unless the last segment is empty, the log end offset counts as the newest base offset, last written now. For the
    segment that contains the log start offset, the log start offset is returned instead of the base offset. With the
    timestamp LATEST every segment counts, with EARLIEST only the first. For clients before Kafka 0.10.1. Source:
    UnifiedLog.legacyFetchOffsetsBefore.
    """
    end_offset, active, end_position = log.end
    segments = log.segments
    offsets = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    if active is segments.active and end_position:
        offsets.append(end_offset)
    if timestamp == EARLIEST:
        newest = 1
    elif timestamp == LATEST:
        newest = len(offsets)
    else:
        written = [segment.modified_ms() for segment in segments]
        if len(offsets) > len(written):
            written.append(log.clock.time_ms())
        newest = next((at + 1 for at in reversed(range(len(written))) if written[at] <= timestamp), 0)
    return sorted(offsets[max(newest - count, 0) : newest], reverse=True)


def offset_of_max_timestamp(log: PartitionLog, end_offset: int) -> TimestampOffset | None:
    """Return the record below `end_offset` with the largest timestamp (KIP-734), None if no record has a timestamp.

    If several records have that timestamp, the first is returned. `end_offset` must be the base offset of a batch, or
    the log end offset. Other threads may append records after it.
    """
    found = [(segment, *segment.max_timestamp_before(end_offset)) for segment in log.segments.between(0, end_offset)]
    if not found:
        return None
    segment, timestamp, last_offset = max(found, key=lambda one: one[1])
    return _search(segment, last_offset, timestamp, 0) if timestamp >= 0 else None


def _search(segment: Segment, offset: int, timestamp: int, start: int) -> TimestampOffset | None:
    """Return the segment's first record at or after offset `start` with this timestamp or a later one, or None.

    The search begins at the offset index entry for `offset`.
    """
    position = segment.offset_index.lookup(offset)
    end = segment.size
    file = segment.handle()
    while (found := segment.files.locate_timestamp(file, position, end, timestamp, start)) is not None:
        record = _in_batch(segment, *found, timestamp, start)
        if record is not None:
            return record
        position = found[0] + found[1]
    return None


def _in_batch(segment: Segment, position: int, size: int, timestamp: int, start: int) -> TimestampOffset | None:
    """Return a batch's first record at or after offset `start` with this timestamp or a later one, or None.

    The batch has `size` bytes and begins at byte `position` of the segment.
    """
    data = segment.files.pread(segment.handle(), size, position)
    header = read_entry(data)
    found = find_timestamp(data, header, timestamp, start)
    return TimestampOffset(found[1], found[0], header.leader_epoch) if found is not None else None
