"""Choose which part of a log can be cleaned, and which log needs cleaning most (Kafka's LogCleanerManager).

A log is clean up to its first dirty offset, and dirty from there up to its first uncleanable offset. Three parts are
not cleaned: the active segment, everything from the last stable offset on (and so everything from the high watermark
on), and segments with records younger than min.compaction.lag.ms.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.segments.segment import Segment

_log = logging.getLogger(__name__)


class Candidate(NamedTuple):
    """A compacted log, and which offsets and how many bytes of the log a cleaning would process."""

    log: PartitionLog
    first_dirty: int
    first_uncleanable: int  # the base offset of a segment
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int  # how long the log is overdue under max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        """Return the dirty bytes divided by all bytes that a cleaning would process (0.0 to 1.0); 0.0 if there are no
        bytes.
        """
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Return True if the log should be cleaned now: the log is overdue under max.compaction.lag.ms, or its dirty
        ratio exceeds min.cleanable.dirty.ratio.
        """
        return bool(self.delay_ms > 0 and self.cleanable_bytes) or (
            self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
        )


def candidate(log: PartitionLog, cleaned_to: int | None, now_ms: int) -> Candidate:
    """Return the Candidate for a log: which of its offsets and how many of its bytes can be cleaned.

    `cleaned_to` is the log's offset in cleaner-offset-checkpoint, None if the log was never cleaned. Raises OSError.
    """
    first_dirty = first_dirty_offset(log, cleaned_to)
    uncleanable = max(first_dirty, _first_uncleanable(log, first_dirty, now_ms))
    held_back = _inactive_from(log, uncleanable)
    end = (held_back[0] if held_back else log.segments.active).base_offset
    return Candidate(
        log,
        first_dirty,
        end,
        sum(segment.size for segment in log.segments.between(0, first_dirty)),
        sum(segment.size for segment in log.segments.between(min(first_dirty, end), end)),
        _delay_ms(log, first_dirty, now_ms),
    )


def first_dirty_offset(log: PartitionLog, cleaned_to: int | None) -> int:
    """Return the first offset of the log that is not cleaned yet.

    This is `cleaned_to`, the log's offset in cleaner-offset-checkpoint, or the log start offset if `cleaned_to` is None
    or lies outside of the log.
    """
    start = log.log_start_offset
    if cleaned_to is None:
        return start
    if cleaned_to < start:
        if not log.config.delete:
            _log.warning("%s: cleaned up to %d, but begins at %d: dirty from there on", log.name, cleaned_to, start)
        return start
    if cleaned_to > log.log_end_offset:
        _log.warning(
            "%s: cleaned up to %d, but ends at %d: all of it counts as dirty", log.name, cleaned_to, log.log_end_offset
        )
        return start
    return cleaned_to


def _inactive_from(log: PartitionLog, offset: int) -> tuple[Segment, ...]:
    """Return the segments from the one that contains `offset` up to, but not including, the active segment."""
    segments = log.segments
    return segments.between(offset, segments.active.base_offset)


def _first_uncleanable(log: PartitionLog, first_dirty: int, now_ms: int) -> int:
    first = min(log.last_stable_offset, log.segments.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _inactive_from(log, first_dirty):
            if segment.largest_timestamp() > now_ms - lag_ms:
                return min(first, segment.base_offset)
    return first


def _delay_ms(log: PartitionLog, first_dirty: int, now_ms: int) -> int:
    clean_until = now_ms - log.config.max_compaction_lag_ms
    if clean_until <= 0:
        return 0
    stamps = (segment.first_timestamp() for segment in _inactive_from(log, first_dirty))
    earliest = min((stamp for stamp in stamps if stamp > 0), default=clean_until)
    return max(clean_until - earliest, 0)
