"""Which segments are deleted, as a policy that can be replaced.

A policy is asked for one reason after the other; for each, segments are offered from the oldest on until it says
no. What is never deleted whatever a policy says (records at or above the high watermark, an empty active segment)
is PartitionLog's business. Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kafkapy.log.config import LogConfig
from kafkapy.log.segment import Segment


class LogView(Protocol):
    """What a policy may look at."""

    @property
    def config(self) -> LogConfig: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class Rule(Protocol):
    """One reason to delete, with what it has counted so far."""

    @property
    def reason(self) -> str: ...

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        """Whether the segment goes; `next_base_offset` is None for the active one."""
        ...


class RetentionPolicy(Protocol):
    def rules(self, log: LogView, now_ms: int) -> Iterator[Rule]:
        """Made anew for each check; a rule sees the log as the rules before it have left it."""
        ...


class BelowLogStart:
    """DeleteRecords, or an earlier deletion, has moved the log start past the whole segment."""

    reason = "all of it is before the log start offset"

    def __init__(self, log_start_offset: int) -> None:
        self._log_start = log_start_offset

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        return next_base_offset is not None and next_base_offset <= self._log_start


class TooLarge:
    """retention.bytes: segments go while the log without them still has that size."""

    def __init__(self, size: int, limit: int) -> None:
        self._excess = size - limit
        self.reason = f"the log has {size} bytes, retention.bytes is {limit}"

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        if self._excess < segment.size:
            return False
        self._excess -= segment.size
        return True


class TooOld:
    """retention.ms, by the largest timestamp of the records, or of the file where they have none."""

    def __init__(self, now_ms: int, limit_ms: int) -> None:
        self._now_ms = now_ms
        self._limit_ms = limit_ms
        self.reason = f"its newest record is older than retention.ms ({limit_ms})"

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        return self._now_ms - segment.largest_timestamp() > self._limit_ms


class KafkaRetention:
    """What the topic's settings say: the log start always counts, size and time where cleanup.policy has delete."""

    def rules(self, log: LogView, now_ms: int) -> Iterator[Rule]:
        yield BelowLogStart(log.log_start_offset)
        config = log.config
        if config.delete:
            if 0 <= config.retention_bytes <= log.size:
                yield TooLarge(log.size, config.retention_bytes)
            if config.retention_ms >= 0:
                yield TooOld(now_ms, config.retention_ms)
