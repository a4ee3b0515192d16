"""Finding a record by its timestamp (Kafka's UnifiedLog.fetchOffsetByTimestamp). May wait for the disk.

Messages of format 0 have no timestamps: they are passed over, and a topic of that format is not searched at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy._ext.entries import read_entry
from kafkapy.log.results import TimestampOffset
from kafkapy.log.segment import Segment
from kafkapy.record.batch import find_timestamp

if TYPE_CHECKING:
    from kafkapy.log.log_state import LogState

# Timestamps that are none, of ListOffsets.
LATEST = -1
EARLIEST = -2


def offset_for_timestamp(log: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record, in offset order from the log start, that is not older than `timestamp`.

    As in Kafka, the first segment with so large a timestamp is the only one that is searched.
    """
    start = log.log_start_offset
    _, active, end_position = log.end
    segments = log.segments
    for segment in segments.items[max(segments.floor(start), 0) :]:
        if segment.largest_timestamp() >= timestamp:
            end = end_position if segment is active else segment.size
            return _search(segment, timestamp, start, end)
    return None


def offsets_before(log: LogState, timestamp: int, count: int) -> list[int]:
    """At most `count` offsets, newest first, at which segments begin that were last written by then.

    The end of the log counts as one more, of now, unless the last segment is empty; a segment that the log start lies
    in begins there. LATEST stands for all of them, EARLIEST for the first alone. For clients before Kafka 0.10.1.
    Source: UnifiedLog.legacyFetchOffsetsBefore.
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


def _search(segment: Segment, timestamp: int, start: int, end: int) -> TimestampOffset | None:
    _, offset = segment.time_index.lookup(timestamp)
    position = segment.offset_index.lookup(max(offset, start))
    file = segment.handle()
    while (found := segment.files.locate_timestamp(file, position, end, timestamp, start)) is not None:
        record = _in_batch(segment, *found, timestamp, start)
        if record is not None:
            return record
        position = found[0] + found[1]
    return None


def offset_of_max_timestamp(log: LogState) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log (KIP-734); None if no record has one."""
    _, active, end_position = log.end
    segment = max(log.segments, key=lambda one: one.max_timestamp[0])
    timestamp, last_offset = segment.max_timestamp
    if timestamp < 0:
        return None
    position = segment.offset_index.lookup(last_offset)
    end = end_position if segment is active else segment.size
    found = segment.files.locate_timestamp(segment.handle(), position, end, timestamp, 0)
    return _in_batch(segment, *found, timestamp, 0) if found is not None else None


def _in_batch(segment: Segment, position: int, size: int, timestamp: int, start: int) -> TimestampOffset | None:
    """The first record of the batch or wrapper that is not older than `timestamp` and not before `start`."""
    data = segment.files.pread(segment.handle(), size, position)
    header = read_entry(data)
    found = find_timestamp(data, header, timestamp, start)
    return TimestampOffset(found[1], found[0], header.leader_epoch) if found is not None else None
