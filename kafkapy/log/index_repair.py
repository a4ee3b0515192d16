"""Making the indexes of a rolled segment anew while the log serves; until then its searches begin at its start."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from kafkapy.log import names
from kafkapy.log.offset_index import OffsetIndex
from kafkapy.log.segment import Segment
from kafkapy.log.time_index import TimeIndex

if TYPE_CHECKING:
    from kafkapy.log.log_state import LogState

_log = logging.getLogger(__name__)

TEMPORARY = ".tmp"


def repair_indexes(log: LogState, segment: Segment) -> None:
    """In the background. Nothing happens if the segment is gone meanwhile, or the whole log. Raises OSError."""
    try:
        _repair(log, segment)
    except FileNotFoundError:
        if not log.closed and segment in log.segments.items:
            raise


def _repair(log: LogState, segment: Segment) -> None:
    size, damage = segment.size, segment.damage()
    if damage is None:
        return
    found = segment.files.scan(segment.handle(), 0, size, segment.base_offset, segment.index_interval, False)
    if found.stopped_by is not None:
        _log.error("%s: %s; it cannot be made anew: %s", segment.path(names.LOG), damage, found.stopped_by)
        return
    room = max(len(found.offset_entries) // 8 + 1, len(found.time_stamps) // 8 + 2) * TimeIndex.width
    place = _Beside(segment)
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
        # A cleaning, a deletion or a truncation may have come first; the active segment has its indexes in memory.
        if log.closed or segment not in log.segments.items or segment is log.segments.active or segment.size != size:
            for index in (offsets, times):
                segment.files.unlink(index.path)
            return
        for index, old in ((offsets, segment.offset_index), (times, segment.time_index)):
            segment.files.rename(index.path, old.path)
            old.let_go()
            old.open(index.count * index.width)
    segment.indexes_changed()
    _log.warning("%s: %s; the indexes are made anew from %d batches", segment.path(names.LOG), damage, found.batches)


class _Beside:
    """Where the new indexes are, until they take the names of the old ones."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.size = segment.size

    def path(self, suffix: str) -> str:
        return os.path.join(self._segment.directory, names.file_name(self._segment.base_offset, suffix) + TEMPORARY)

    def damaged(self) -> None:
        """They are new, and in memory."""
