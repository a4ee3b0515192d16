"""Find a record by offset or timestamp through the indexes, without reading the whole segment.

An index is never trusted. If an index is missing or does not lead to a batch, the segment's batch headers are scanned
from the start. Source: Kafka's LogSegment.translateOffset and findOffsetByTimestamp.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.segment_scan import CorruptSegment, floor_entry, locate, locate_timestamp
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.index_files import OFFSET_ENTRY, TIME_ENTRY, entries_in
from kafkapy.log.offline.places import Segment
from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.record.batch import find_timestamp
from kafkapy.record.records import Record

LAST = (1 << 63) - 1  # the largest possible offset and timestamp


class Found(NamedTuple):
    """A record that a search has found, and whether it is a control record."""

    record: Record
    control: bool


def record_at(segments: Sequence[Segment], offset: int) -> Found | None:
    """Return the record at `offset`, or the next record after it if no record has that offset; None at the end of the
    log.

    Raises OfflineError, OSError.
    """
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= offset:
            continue
        with LogReader(segment.path) as log:
            for batch in log.batches(position_of(segment, offset)):
                if batch.header.last_offset >= offset:
                    for record in records_of(log.path, batch):
                        if record.offset >= offset:
                            return Found(record, bool(batch.header.is_control))
    return None


def record_since(segments: Sequence[Segment], timestamp: int, room: int | None = None) -> Found | None:
    """Return the first record with this timestamp or a later one, as ListOffsets does, None if there is no such record.

    `room`: how many bytes of the last segment to search, all by default. Raises OfflineError, OSError.
    """
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and is_older(segment, timestamp):
            continue
        start = _position_of_time(segment, timestamp)
        with _log(segment, room if number + 1 == len(segments) else None) as log:
            position = _locate_time(log, start, timestamp)
            if position is None:
                continue
            for batch in log.batches(position):
                if batch.header.max_timestamp < timestamp:
                    continue
                try:
                    found = find_timestamp(batch.data, batch.header, timestamp)
                except ValueError as error:
                    raise _unreadable(log.path, batch, error) from error
                if found is not None:
                    record = next(one for one in records_of(log.path, batch) if one.offset == found[0])
                    return Found(record, bool(batch.header.is_control))
    return None


def position_of(segment: Segment, offset: int) -> int:
    """Return the position of the first batch whose last offset is `offset` or later; the file's size if there is no
    such batch.

    Raises OSError. If the file is damaged before that batch, this is the position of the damage, so that reading from
    there raises the error.
    """
    start = index_position(segment, offset)
    with _log(segment) as log:
        for begin in (start, 0) if start else (0,):
            try:
                found = locate(log.fd, begin, log.size, offset)
            except CorruptSegment:
                continue
            if found is None:
                return log.size
            if begin == 0 or first_offset_of(log, found[0]) <= offset:
                return found[0]
            # The index entry may point past the offset, or no batch contains it: the scan from the start decides.
        # The segment is damaged, or only ends in an incomplete batch.
        position = start if log.header_at(start) is not None else 0
        while (header := log.header_at(position)) is not None and header.last_offset < offset:
            position += header.size
        return position


def end_offset_of(segment: Segment) -> int:
    """Return the offset after the last batch of the segment; the segment's base offset if it has no batches.

    Only the batches from the last index entry on are read. Raises OfflineError, OSError.
    """
    for start in (index_position(segment, LAST), 0):
        end = segment.base_offset
        try:
            with LogReader(segment.path) as log:
                for batch in log.batches(start):
                    end = batch.header.last_offset + 1
        except OfflineError:
            if start == 0:
                raise
            continue
        if end > segment.base_offset:
            return end
    return segment.base_offset


def records_of(path: Path, batch: StoredBatch) -> list[Record]:
    """Return the records of a batch in the file `path`. Raises OfflineError if the batch is damaged."""
    try:
        return batch.records()
    except ValueError as error:
        raise _unreadable(path, batch, error) from error


def begin_of(segment: Segment, offset: int | None, timestamp: int | None) -> int:
    """Return a position from which to scan a segment for records from `offset` and `timestamp` on; None is no bound.

    No record before that position has both this offset or a later one and this timestamp or a later one. Raises
    OSError.
    """
    position = 0 if offset is None else position_of(segment, offset)
    return position if timestamp is None else max(position, _position_of_time(segment, timestamp))


def is_older(segment: Segment, timestamp: int) -> bool:
    """Return True if all records of a sealed segment are older than `timestamp`, according to its last time index
    entry.
    """
    entry = _floor(segment.path.with_suffix(".timeindex"), TIME_ENTRY.size, LAST)
    return entry is not None and entry[0] < timestamp


def index_position(segment: Segment, offset: int) -> int:
    """Return the position at which to begin a scan for `offset`, according to the offset index; 0 without a usable
    index.
    """
    entry = index_entry(segment, offset)
    return max(entry[1], 0) if entry is not None else 0


def index_entry(segment: Segment, offset: int) -> tuple[int, int] | None:
    """Return (offset, position) of the last offset index entry at or before `offset`, None if there is none."""
    relative = min(offset - segment.base_offset, (1 << 31) - 1)
    entry = _floor(segment.path.with_suffix(".index"), OFFSET_ENTRY.size, relative)
    return None if entry is None else (segment.base_offset + entry[0], entry[1])


def _position_of_time(segment: Segment, timestamp: int) -> int:
    """Return a position in the segment before which all records are older than `timestamp`, according to the time
    index.
    """
    entry = _floor(segment.path.with_suffix(".timeindex"), TIME_ENTRY.size, timestamp - 1)
    return index_position(segment, segment.base_offset + entry[1]) if entry is not None else 0


def first_offset_of(log: LogReader, position: int) -> int:
    """Return the offset of the first record of the batch at `position`, -1 if the batch is damaged.

    A compressed message of format 0 or 1 is decompressed to find the offset.
    """
    header = log.header_at(position)
    if isinstance(header, BatchHeader):
        return header.base_offset
    try:
        return next(log.batches(position)).records()[0].offset
    except (OfflineError, ValueError, StopIteration, IndexError):
        return -1


@contextmanager
def _log(segment: Segment, limit: int | None = None) -> Iterator[LogReader]:
    """Open a segment for reading, and add its path to any OSError, as the C functions only know the file descriptor."""
    with LogReader(segment.path, limit) as log:
        try:
            yield log
        except OSError as error:
            raise error if error.filename else OSError(error.errno, error.strerror, str(segment.path)) from error


def _locate_time(log: LogReader, start: int, timestamp: int) -> int | None:
    for begin in (start, 0):
        try:
            found = locate_timestamp(log.fd, begin, log.size, timestamp, 0)
            return None if found is None else found[0]
        except CorruptSegment:
            continue
    return 0


def _floor(path: Path, width: int, target: int) -> tuple[int, int] | None:
    """Return (key, value) of the last written entry in the index file `path` whose key is at most `target`.

    None if there is no such entry, or the file cannot be read.
    """
    try:
        with _opened(path) as fd:
            count = entries_in(fd, width)
            found = floor_entry(fd, count, width, target) if count else None
    except OSError:
        return None
    return None if found is None else (found[1], found[2])


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _unreadable(path: Path, batch: StoredBatch, error: ValueError) -> OfflineError:
    return OfflineError(f"{path} is damaged: the records of the {batch.place} cannot be read: {error}.")
