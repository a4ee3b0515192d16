"""Delete the oldest segments of a Kafka 0.7 log, as the retention policy of all logs selects them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from kafkapy.log.config import LogConfig
from kafkapy.log.log07.log import Log07
from kafkapy.log.log07.segment import Segment
from kafkapy.log.retention import RetentionPolicy, Rule

if TYPE_CHECKING:
    from kafkapy.log.segments.segment import Segment as ModernSegment

_log = logging.getLogger(__name__)


class _View:
    """A Kafka 0.7 log as a retention policy sees it (kafkapy.log.retention.LogView)."""

    def __init__(self, log: Log07) -> None:
        settings = log.settings
        self.config = LogConfig({"retention.ms": settings.retention_ms, "retention.bytes": settings.retention_bytes})
        self._log = log

    @property
    def log_start_offset(self) -> int:
        return self._log.start

    @property
    def size(self) -> int:
        return self._log.size


def delete_old_segments(log: Log07, policy: RetentionPolicy) -> int:
    """Delete the segments that the policy's rules select, oldest first, and return their number.

    Reads in progress can still read a deleted file. If all segments are deleted, an empty one is created, which begins
    at the end of the log. Raises LogDirFailure, and KafkaError for a shortage. After an error, the segments whose files
    are not deleted stay in the log.
    """
    count = 0
    try:
        for rule in policy.rules(_View(log), log.env.clock.time_ms()):
            for segment in _selected(log, rule):
                _delete(log, segment, rule.reason)
                count += 1
    except OSError as error:
        raise log.env.disk_error(f"deleting old segments of {log.name}", error) from error
    return count


def _selected(log: Log07, rule: Rule) -> list[Segment]:
    """Return the segments that the rule selects, oldest first. Roll the log if it selects all of them."""
    gone: list[Segment] = []
    with log.flushing, log.lock:
        for at, segment in enumerate(log.segments):
            following = log.segments[at + 1].start if at + 1 < len(log.segments) else None
            if following is None and not segment.size:
                break  # an empty log stays as it is
            if not rule.breached(cast("ModernSegment", segment), following):
                break
            gone.append(segment)
        if gone and len(gone) == len(log.segments):
            log.roll_locked()
    return gone


def _delete(log: Log07, segment: Segment, reason: str) -> None:
    """Delete the oldest segment of the log. Raises OSError.

    If the file cannot be removed, the segment stays in the log: the log would have a gap if a later segment were
    deleted while this file is still there.
    """
    files = log.env.files
    with log.lock:
        log.segments = log.segments[1:]
    try:
        files.unlink(segment.path)
    except OSError:
        with log.lock:
            log.segments = (segment, *log.segments)
        raise
    segment.retire()
    # One by one: if a power cut brought back an older segment without the next one, there would be a gap.
    files.sync_dir(log.directory)
    _log.info("deleted %s: %s", segment.path, reason)
