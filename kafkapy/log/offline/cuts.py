"""Find batches at which a segment can be cut into ranges of about equal size.

The positions come from the offset index. An entry is used only if a whole batch with a correct checksum lies there and
its offsets fit the entry. If the index is missing, wrong or has large gaps, the batch headers are scanned instead.
"""

from __future__ import annotations

import os
from itertools import pairwise
from struct import iter_unpack
from typing import NamedTuple

from kafkapy._ext.segment_scan import ceiling_position, scan
from kafkapy.log.names import OFFSET_INDEX
from kafkapy.log.offline.ends import is_batch_of
from kafkapy.log.offline.index_files import OFFSET_ENTRY, entries_in
from kafkapy.log.offline.lookups import first_offset_of, position_of
from kafkapy.log.offline.places import Segment
from kafkapy.log.offline.stored_batches import LogReader

LOOK = 1 << 14  # bytes that are read to check a batch; most batches are smaller


class Cut(NamedTuple):
    """A batch at which to cut a segment: the batch's position in the file, first offset and checksum."""

    position: int
    offset: int
    crc: int


class Extent(NamedTuple):
    """A range of whole batches in a segment file: its first and last position, and the checksum of its first batch."""

    begin: int
    stop: int
    crc: int


def extent_of(segment: Segment, start: int, end: int, room: int, *, whole: bool) -> Extent | None:
    """Return where in the segment's file the records with start <= offset < end lie, None if there are none.

    room: the position after the last whole batch of the file. whole: the segment has no records at or after `end`.
    Raises OSError. Damage is ignored here, because reading the records reports it.
    """
    begin = 0 if start <= segment.base_offset else position_of(segment, start)
    stop = room if whole else min(position_of(segment, end), room)
    with LogReader(segment.path, room, chunk=LOOK) as log:
        if not whole:
            stop = _behind(log, stop, end)
        header = log.header_at(begin)
    return Extent(begin, stop, 0 if header is None else header.crc) if begin < stop else None


def cuts_between(segment: Segment, begin: int, stop: int, max_bytes: int) -> list[Cut]:
    """Return the batches at which to cut the bytes from `begin` to `stop`, so that each part has about `max_bytes` at
    most.

    `begin` and `stop` are positions between two batches of the segment. Raises OSError.
    """
    parts = -(-(stop - begin) // max_bytes)
    if parts < 2:
        return []
    step = -(-(stop - begin) // parts)
    with LogReader(segment.path, stop, chunk=LOOK) as log:
        indexed = _from_index(log, segment, begin, stop, step)
        return _walked(log, segment, begin, stop, step) if indexed is None else indexed


def _behind(log: LogReader, position: int, end: int) -> int:
    """Return the position after the batch at `position` if that batch begins before the offset `end`, else
    `position`.
    """
    header = log.header_at(position)
    return position if header is None or first_offset_of(log, position) >= end else position + header.size


def _from_index(log: LogReader, segment: Segment, begin: int, stop: int, step: int) -> list[Cut] | None:
    """Return a Cut about every `step` bytes from the offset index, None if the index is unusable or too sparse."""
    found: list[Cut] = []
    try:
        fd = os.open(segment.path.with_suffix(OFFSET_INDEX), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        count = entries_in(fd, OFFSET_ENTRY.size)
        for target in range(begin + step, stop, step):
            entry = ceiling_position(fd, count, target)
            if entry is None or entry[1] >= stop:
                break
            if not is_batch_of(log, segment.base_offset + entry[0], entry[1]):
                return None
            if not found or entry[1] > found[-1].position:
                found.append(_cut_at(log, entry[1]))
    finally:
        os.close(fd)
    places = [begin, *(cut.position for cut in found), stop]
    return found if all(behind - at <= 2 * step for at, behind in pairwise(places)) else None


def _walked(log: LogReader, segment: Segment, begin: int, stop: int, step: int) -> list[Cut]:
    entries = scan(log.fd, begin, stop, segment.base_offset, step, verify=False).offset_entries
    positions = (entry & 0xFFFFFFFF for (entry,) in iter_unpack("=Q", entries))
    return [_cut_at(log, position) for position in positions if log.valid_batch_at(position)]


def _cut_at(log: LogReader, position: int) -> Cut:
    header = log.header_at(position)
    assert header is not None
    return Cut(position, first_offset_of(log, position), header.crc)
