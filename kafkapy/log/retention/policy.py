"""Select the segments to delete, through a replaceable policy.

A policy is a sequence of rules, each of which is one reason to delete. Each rule is asked about the segments from the
oldest on, until the rule keeps a segment. PartitionLog ensures that no rule deletes records at or above the high
watermark, or an empty active segment. Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kafkapy.log.config import LogConfig
from kafkapy.log.segments.segment import Segment


class LogView(Protocol):
    """The attributes of a log that a retention policy may use."""

    @property
    def config(self) -> LogConfig: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class Rule(Protocol):
    """One reason to delete segments. A new object is made for each check, so that the rule may count bytes."""

    @property
    def reason(self) -> str: ...

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        """Return True if `segment` should be deleted. `next_base_offset` is that of the next segment, None for the
        active segment.
        """
        ...


class RetentionPolicy(Protocol):
    """A replaceable retention policy (setting kafkapy.retention.policy): an object that makes the rules for
    each check.
    """

    def rules(self, log: LogView, now_ms: int) -> Iterator[Rule]:
        """Yield new rules for one check of `log` at the time `now_ms`.

        When a rule is made, the segments that the rules before it have selected are deleted already.
        """
        ...


class BelowLogStart:
    """The rule that deletes segments completely below the log start offset, which DeleteRecords may have moved."""

    reason = "all of it is before the log start offset"

    def __init__(self, log_start_offset: int) -> None:
        self._log_start = log_start_offset

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        return next_base_offset is not None and next_base_offset <= self._log_start


class TooLarge:
    """The rule of retention.bytes: deletes a segment if the log without it still has at least retention.bytes."""

    def __init__(self, size: int, limit: int) -> None:
        self._excess = size - limit
        self.reason = f"the log has {size} bytes, retention.bytes is {limit}"

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        if self._excess < segment.size:
            return False
        self._excess -= segment.size
        return True


class TooOld:
    """The rule of retention.ms: deletes a segment if its largest timestamp is older than retention.ms.

    If its records have no timestamps, the file's modification time counts.
    """

    def __init__(self, now_ms: int, limit_ms: int) -> None:
        self._now_ms = now_ms
        self._limit_ms = limit_ms
        self.reason = f"its newest record is older than retention.ms ({limit_ms})"

    def breached(self, segment: Segment, next_base_offset: int | None) -> bool:
        return self._now_ms - segment.largest_timestamp() > self._limit_ms


class KafkaRetention:
    """Kafka's retention policy: deletes below the log start offset always, by size and time if cleanup.policy has
    delete.
    """

    def rules(self, log: LogView, now_ms: int) -> Iterator[Rule]:
        yield BelowLogStart(log.log_start_offset)
        config = log.config
        if config.delete:
            if 0 <= config.retention_bytes <= log.size:
                yield TooLarge(log.size, config.retention_bytes)
            if config.retention_ms >= 0:
                yield TooOld(now_ms, config.retention_ms)
