"""The room that is left in the active segment. Source: Kafka's LogSegment.shouldRoll."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

_ANY = (1 << 63) - 1
_NONE = -_ANY


class Room:
    """The room in the active segment of a log, after the batches that were added by `add`.

    It is measured once and kept up to date by appends, which replace it when `is_valid_for` returns False. Only a
    thread that holds the log's lock may call `add` and set `end`.

    `end`: the end of the log at which the room is valid. `next_offset`: the offset of the next record.
    """

    __slots__ = (
        "_config",
        "_entries_left",
        "_filled",
        "_last_possible",
        "_latest",
        "end",
        "next_offset",
        "segment",
        "segment_bytes",
    )

    def __init__(self, log: PartitionLog) -> None:
        """Measure the room in the active segment. Raises OSError if reading the first batch's timestamp fails."""
        self._config = config = log.config
        self.end = end = log.end
        self.next_offset, segment, self._filled = end
        self.segment = segment
        self.segment_bytes = config.segment_bytes
        self._entries_left = segment.entries_left()
        self._last_possible = segment.base_offset + MAX_RELATIVE_OFFSET
        # A batch with a later timestamp than this goes to a new segment, unless the segment has no timestamps.
        self._latest = self._latest_after(segment.first_timestamp()) if self._filled else _ANY

    def _latest_after(self, first_timestamp: int) -> int:
        if first_timestamp < 0:
            return _NONE
        return first_timestamp + self._config.max_segment_ms - self.segment.roll_jitter_ms

    def is_valid_for(self, log: PartitionLog) -> bool:
        """Return True if nothing but appends that use this object has changed the log."""
        return log.end is self.end and log.config is self._config

    def fits(self, size: int, entries: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Return True if a batch goes to the active segment, False if it needs a new one.

        `size` is in bytes, and `entries` is how many index entries the batch may add.
        """
        return (
            self._filled + size <= self.segment_bytes
            and entries <= self._entries_left
            and last_offset <= self._last_possible
            and (max_timestamp <= self._latest or not self._is_over(now_ms))
        )

    def _is_over(self, now_ms: int) -> bool:
        """Return True if the segment is too old for a batch with a timestamp after `_latest`.

        If the first batch has no timestamp, the age of the segment counts.
        """
        if self._latest != _NONE:
            return True
        segment = self.segment
        return now_ms - segment.created_ms > self._config.max_segment_ms - segment.roll_jitter_ms

    def add(self, size: int, entries: int, max_timestamp: int, last_offset: int) -> None:
        """Subtract a batch from the room."""
        if not self._filled:
            self._latest = self._latest_after(max_timestamp)
        self._filled += size
        self._entries_left -= entries
        self.next_offset = last_offset + 1
