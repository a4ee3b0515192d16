"""Rebuild the damaged indexes of a rolled segment in the background.

Until the indexes are rebuilt, searches scan from the start of the segment.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from kafkapy.log import names
from kafkapy.log.indexes.offset_index import OffsetIndex
from kafkapy.log.indexes.time_index import TimeIndex
from kafkapy.log.segments.segment import Segment

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

TEMPORARY = ".tmp"


def repair_indexes(log: PartitionLog, segment: Segment) -> None:
    """Rebuild the segment's offset index and time index if one of them is damaged. Runs in the background.

    Does nothing if the segment or the log was deleted meanwhile. Raises OSError.
    """
    try:
        _repair(log, segment)
    except FileNotFoundError:
        if not log.closed and segment in log.segments.items:
            raise


def _repair(log: PartitionLog, segment: Segment) -> None:
    """Rebuild the damaged indexes in files with temporary names, which then replace the damaged files.

    Does nothing if the indexes are undamaged, if the segment itself is damaged, or if it was changed or removed
    meanwhile.
    """
    size, damage = segment.size, segment.damage()
    if damage is None:
        return
    found = segment.files.scan(segment.handle(), 0, size, segment.base_offset, segment.index_interval, False)
    if found.stopped_by is not None:
        _log.error("%s: %s; it cannot be rebuilt: %s", segment.path(names.LOG), damage, found.stopped_by)
        return
    room = max(len(found.offset_entries) // 8 + 1, len(found.time_stamps) // 8 + 2) * TimeIndex.width
    place = _TemporaryPlace(segment)
    offsets = OffsetIndex(segment.files, place, segment.base_offset, room)
    times = TimeIndex(segment.files, place, segment.base_offset, room)
    offsets.rebuild()
    offsets.take(found.offset_entries)
    times.rebuild()
    times.take(found.time_stamps, found.time_offsets)
    times.maybe_append(found.max_timestamp, found.max_timestamp_offset)
    for index in (offsets, times):
        index.trim()
        index.sync()
    with log.lock:
        # During the scan, which holds no lock, a cleaning or deletion may have removed the segment, or a truncation
        # made it shorter or the active one. The new indexes would not fit. The active segment has its indexes in
        # memory.
        if log.closed or segment not in log.segments.items or segment is log.segments.active or segment.size != size:
            for index in (offsets, times):
                segment.files.unlink(index.path)
            return
        for index, old in ((offsets, segment.offset_index), (times, segment.time_index)):
            segment.files.rename(index.path, old.path)
            old.release()
            old.open(index.count * index.width)
    segment.indexes_changed()
    _log.warning("%s: %s; rebuilt the indexes from %d batches", segment.path(names.LOG), damage, found.batches)


class _TemporaryPlace:
    """A Place for the rebuilt indexes: their files have temporary names until they replace the damaged index files."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.size = segment.size

    def path(self, suffix: str) -> str:
        return os.path.join(self._segment.directory, names.file_name(self._segment.base_offset, suffix) + TEMPORARY)

    def damaged(self) -> None:
        """Do nothing: the new indexes are in memory and cannot be damaged."""
