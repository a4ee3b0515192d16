"""Split a segment whose offsets do not fit into its indexes, as Kafka does at the start (KAFKA-6264).

A crash is handled as after a crash of the log cleaner: files that end with `.cleaned` are incomplete, and the next
start removes them; files that end with `.swap` are complete, and the next start finishes the split. Source: Kafka's
LocalLog.splitOverflowedSegment and replaceSegments.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.log import names
from kafkapy.log.config import LogConfig
from kafkapy.log.segments.segment import WITHOUT_ENTRIES, Segment
from kafkapy.record.batch import records_of
from kafkapy.record.legacy import read_entry
from kafkapy.runtime.clock import Clock

_HEADER = 61
_PIECE = 1 << 20


class _Part(NamedTuple):
    base_offset: int
    begin: int  # `begin` and `end` are positions in the old file
    end: int


def split(segment: Segment, config: LogConfig, clock: Clock) -> list[int]:
    """Replace the segment's files by the files of several segments, and return the base offsets of these.

    Raises OSError.

    Bytes at the end that are not a valid batch are copied to the last new segment; recovery handles them.
    """
    new_segments = [_make(segment, part, config, clock) for part in _parts(segment)]
    # Renamed from the last to the first, because a start ignores every `.swap` after the first `.cleaned`.
    for part in reversed(new_segments):
        part.rename(names.SWAP)
    segment.files.sync_dir(segment.directory)
    segment.delete()
    for part in new_segments:
        part.rename("")
        part.release()
    segment.files.sync_dir(segment.directory)
    return [part.base_offset for part in new_segments]


def _parts(segment: Segment) -> list[_Part]:
    """Return the parts to make segments of. The first has the base offset of the old segment.

    It is empty if even the first batch is too far from that base offset. It is made nevertheless: after a crash, the
    start only removes old files from the offset of the first `.swap` file on.
    """
    files, file, size = segment.files, segment.handle(), segment.size
    found = files.scan(file, 0, size, segment.base_offset, WITHOUT_ENTRIES, False)
    parts = [_Part(segment.base_offset, 0, found.valid_end)]
    while (begin := parts[-1].end) < size:
        base = _base_offset_at(segment, begin)
        found = files.scan(file, begin, size, base, WITHOUT_ENTRIES, False)
        if found.batches:
            parts.append(_Part(base, begin, found.valid_end))
        else:
            parts[-1] = parts[-1]._replace(end=size)
    return parts


def _base_offset_at(segment: Segment, position: int) -> int:
    """Return the offset of the first record in the batch at byte `position`.

    For a compressed message of format 0 or 1, the message must be decompressed, because its header contains the last
    offset.
    """
    head = segment.files.pread(segment.handle(), _HEADER, position)
    size = int.from_bytes(head[8:12], "big", signed=True) + 12
    data = segment.files.pread(segment.handle(), max(size, 0), position)
    try:
        header = read_entry(data)
        if header.magic < 2:
            return records_of(data, header)[0].offset
    except (ValueError, IndexError):
        pass  # the recovery that follows reports the damage
    return int.from_bytes(head[:8], "big", signed=True)


def _make(old: Segment, part: _Part, config: LogConfig, clock: Clock) -> Segment:
    files = old.files
    new = Segment.create(files, old.directory, part.base_offset, config, clock, suffix=names.CLEANED)
    for begin in range(part.begin, part.end, _PIECE):
        piece = files.pread(old.handle(), min(_PIECE, part.end - begin), begin)
        new.size += files.write_all(new.handle(), [piece], new.size)
    found = files.scan(new.handle(), 0, new.size, new.base_offset, new.index_interval, False)
    new.offset_index.take(found.offset_entries)
    new.time_index.take(found.time_stamps, found.time_offsets)
    new.max_timestamp = (found.max_timestamp, found.max_timestamp_offset)
    new.seal()
    new.sync()
    new.set_modified_ms(old.modified_ms())
    return new
