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
    at the end of the log. Raises LogDirFailure, and KafkaError for a shortage.
    """
    try:
        with log.flushing, log.lock:
            gone = [
                (segment, rule.reason)
                for rule in policy.rules(_View(log), log.env.clock.time_ms())
                for segment in _take(log, rule)
            ]
        for segment, reason in gone:
            segment.retire()
            log.env.files.unlink(segment.path)
            # One by one: if a power cut brought back an older segment without the next one, there would be a gap.
            log.env.files.sync_dir(log.directory)
            _log.info("deleted %s: %s", segment.path, reason)
    except OSError as error:
        raise log.env.disk_error(f"deleting old segments of {log.name}", error) from error
    return len(gone)


def _take(log: Log07, rule: Rule) -> list[Segment]:
    """Remove the segments that the rule selects from the list of segments, and return them."""
    gone = _selected(log, rule)
    if gone and len(gone) == len(log.segments):
        log.roll_locked()
    log.segments = log.segments[len(gone) :]
    return gone


def _selected(log: Log07, rule: Rule) -> list[Segment]:
    gone: list[Segment] = []
    for at, segment in enumerate(log.segments):
        following = log.segments[at + 1].start if at + 1 < len(log.segments) else None
        if following is None and not segment.size:
            break  # an empty log stays as it is
        if not rule.breached(cast("ModernSegment", segment), following):
            break
        gone.append(segment)
    return gone
