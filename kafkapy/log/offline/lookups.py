"""Where a record is, by its offset or its time, through the indexes: nothing else of a segment is read.

An index is a help, never believed: where it is missing, or leads to no batch, the segment's headers are walked from its
begin. Source: Kafka's LogSegment.translateOffset and findOffsetByTimestamp.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.segment_scan import CorruptSegment, floor_entry, locate, locate_timestamp
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.index_files import OFFSET_ENTRY, TIME_ENTRY
from kafkapy.log.offline.places import Segment
from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.record.batch import Record, find_timestamp

LAST = (1 << 63) - 1  # no offset and no time is larger


class Found(NamedTuple):
    """A record, and whether it is a control record."""

    record: Record
    control: bool


def record_at(segments: Sequence[Segment], offset: int) -> Found | None:
    """The record at an offset, or where there is none the next one behind it. Raises OfflineError, OSError."""
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
    """The first record with this timestamp or a later one, as ListOffsets finds it. `room`: how many bytes of the last
    segment to look at, all by default. Raises OfflineError, OSError."""
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
    """Where the batch that holds the offset begins, or the first one behind it; the file's size if there is none.

    Raises OSError. Stops before what is no batch: whoever reads on will say so.
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
            # Nothing has the offset, or the index has led behind it: the walk from the begin tells.
        # There is damage, or only the end of a batch that is just being written.
        position = start if log.header_at(start) is not None else 0
        while (header := log.header_at(position)) is not None and header.last_offset < offset:
            position += header.size
        return position


def end_offset_of(segment: Segment) -> int:
    """The offset behind the segment's last batch, found from the last index entry on. Raises OfflineError, OSError."""
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
    """Those of a batch of that file. Raises OfflineError."""
    try:
        return batch.records()
    except ValueError as error:
        raise _unreadable(path, batch, error) from error


def begin_of(segment: Segment, offset: int | None, timestamp: int | None) -> int:
    """A position before which there is nothing with this offset or time, or a later one: where a scan may begin."""
    position = 0 if offset is None else position_of(segment, offset)
    return position if timestamp is None else max(position, _position_of_time(segment, timestamp))


def is_older(segment: Segment, timestamp: int) -> bool:
    """Whether the last entry of a sealed segment's time index, that of its largest timestamp, lies before the time."""
    entry = _floor(segment.path.with_suffix(".timeindex"), TIME_ENTRY.size, LAST)
    return entry is not None and entry[0] < timestamp


def index_position(segment: Segment, offset: int) -> int:
    """Where the offset index says that a search begins; 0 without one."""
    entry = index_entry(segment, offset)
    return max(entry[1], 0) if entry is not None else 0


def index_entry(segment: Segment, offset: int) -> tuple[int, int] | None:
    """The last entry of the offset index up to an offset: (offset, position)."""
    relative = min(offset - segment.base_offset, (1 << 31) - 1)
    entry = _floor(segment.path.with_suffix(".index"), OFFSET_ENTRY.size, relative)
    return None if entry is None else (segment.base_offset + entry[0], entry[1])


def _position_of_time(segment: Segment, timestamp: int) -> int:
    """Up to this position everything is older."""
    entry = _floor(segment.path.with_suffix(".timeindex"), TIME_ENTRY.size, timestamp - 1)
    return index_position(segment, segment.base_offset + entry[1]) if entry is not None else 0


def first_offset_of(log: LogReader, position: int) -> int:
    """The base offset of the batch there; a wrapper of formats 0 and 1 has to be unpacked for it. -1: it is damaged."""
    header = log.header_at(position)
    if isinstance(header, BatchHeader):
        return header.base_offset
    try:
        return next(log.batches(position)).records()[0].offset
    except (OfflineError, ValueError, StopIteration, IndexError):
        return -1


@contextmanager
def _log(segment: Segment, limit: int | None = None) -> Iterator[LogReader]:
    """The C functions that read of it do not know its name."""
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
    """The last entry up to `target`, of those that are not zeros reserved at the end: (key, value)."""
    try:
        with _opened(path) as fd:
            count = entries_in(fd, width)
            found = floor_entry(fd, count, width, target) if count else None
    except OSError:
        return None
    return None if found is None else (found[1], found[2])


def entries_in(fd: int, width: int) -> int:
    """How many an index file has before the zeros that one which still grows ends in; found by halving."""
    low, high = 0, os.fstat(fd).st_size // width
    while low < high:
        middle = (low + high) // 2
        if any(os.pread(fd, width, middle * width)):
            low = middle + 1
        else:
            high = middle
    return low


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _unreadable(path: Path, batch: StoredBatch, error: ValueError) -> OfflineError:
    return OfflineError(f"{path} is damaged: the records of the {batch.place} cannot be read: {error}.")
