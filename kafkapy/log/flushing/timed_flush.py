"""Flush logs often enough that no record stays unflushed longer than flush.ms (Kafka's LogManager.flushDirtyLogs).

Kafka checks which logs to flush only every log.flush.scheduler.interval.ms, which by default is never, so in Kafka
log.flush.interval.ms alone has no effect. Here the shortest flush.ms of all logs determines how often the broker
checks, unless the scheduler interval is shorter. Nothing is scheduled while no log has a flush.ms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.log.environment import SchedulerLike
from kafkapy.log.settings import NEVER_MS
from kafkapy.runtime.clock import Clock

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

LOOKS_PER_INTERVAL = 4  # a log is flushed after three quarters of its flush.ms at the earliest
THREADS = 4  # syncs that wait at the same time share a commit of the file system's journal
SHORTEST_MS = 10  # least time between two checks: a flush.ms of 0 must not keep a thread busy


class EachLog(Protocol):
    """The interface of LogManager.each_log: call `act` with each log, on up to `threads` threads."""

    def __call__(
        self, act: Callable[[PartitionLog], object], what: str, logs: Iterable[PartitionLog], *, threads: int
    ) -> None: ...


class TimedFlush:
    """Flushes the logs of one log directory as their flush.ms demands, until `stop`. Any thread may call `wanted`."""

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        each_log: EachLog,
        scheduler: SchedulerLike,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        """`logs` returns the open logs; `interval_ms` is log.flush.scheduler.interval.ms."""
        self._logs = logs
        self._each_log = each_log
        self._scheduler = scheduler
        self._clock = clock
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._wanted_ms = NEVER_MS  # the shortest flush.ms passed to `wanted` since the last check began
        self._period_ms = NEVER_MS  # the period of the scheduled checks
        self._task: Any = None  # the scheduled check; None while a check runs, or if no log has a flush.ms
        self._due = 0.0  # when it begins
        self._looking = False
        self._stopped = False

    def wanted(self, flush_ms: int) -> None:
        """Make sure that the checks are frequent enough for a log with this flush.ms, which is new or has new settings.

        `logs` must already return the log, because a check that begins after this call reads the flush.ms of all logs.
        """
        if flush_ms >= NEVER_MS:
            return
        with self._lock:
            self._wanted_ms = min(self._wanted_ms, flush_ms)
            period_ms = self._period_for(flush_ms)
            if period_ms < self._period_ms and not self._looking:  # the end of a running check schedules the next check
                # The scheduled check is not delayed: records of other logs may have to be flushed by then.
                left_ms = period_ms if self._task is None else (self._due - self._clock.monotonic()) * 1000
                self._schedule(period_ms, max(0.0, min(period_ms, left_ms)))

    def stop(self) -> None:
        """Cancel the scheduled check. A check that is running finishes."""
        with self._lock:
            self._stopped = True
            if self._task is not None:
                self._task.cancel()
                self._task = None

    def look(self) -> None:
        """Flush each log that would exceed its flush.ms before the next check, and schedule the next check."""
        with self._lock:
            began = self._clock.monotonic()
            self._task = None
            self._looking = True
            self._wanted_ms = NEVER_MS
            period_ms = self._period_ms  # still used if asking the logs fails for lack of memory

        def is_due(log: PartitionLog) -> bool:
            return log.flusher.ms_since_flush + period_ms + 1 >= log.config.flush_ms  # 1: rounding

        def flush_if_due(log: PartitionLog) -> None:
            if is_due(log):
                log.flush()

        try:
            logs = [log for log in self._logs() if log.config.flush_ms < NEVER_MS]
            period_ms = self._period_for(min((log.config.flush_ms for log in logs), default=NEVER_MS))
            syncs = sum(log.flusher.has_unsynced for log in logs if is_due(log))
            self._each_log(flush_if_due, "the flush by time", logs, threads=min(max(syncs, 1), THREADS))
        finally:
            with self._lock:
                self._looking = False
                period_ms = min(period_ms, self._period_for(self._wanted_ms))
                took_ms = int((self._clock.monotonic() - began) * 1000)
                self._schedule(period_ms, max(period_ms - took_ms, 0))

    def _period_for(self, flush_ms: int) -> int:
        if flush_ms >= NEVER_MS:
            return NEVER_MS
        return max(min(flush_ms // LOOKS_PER_INTERVAL, self._interval_ms), SHORTEST_MS)

    def _schedule(self, period_ms: int, delay_ms: float) -> None:
        """Schedule the next check in `delay_ms`, replacing a scheduled one. Called with the lock held."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._period_ms = NEVER_MS  # if this fails, the next call of `wanted` schedules a check
        if period_ms < NEVER_MS and not self._stopped:
            self._due = self._clock.monotonic() + delay_ms / 1000
            self._task = self._scheduler.schedule("log-flusher", self.look, delay_ms / 1000)
            self._period_ms = period_ms
