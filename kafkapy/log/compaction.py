"""The log cleaner as the log manager has it: loaded and started when the first compacted log is there.

A broker without one spares the threads, the memory and the time at the start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.runtime.clock import Clock

if TYPE_CHECKING:
    from kafkapy.log.cleaner.service import LogCleaner
    from kafkapy.log.environment import SchedulerLike
    from kafkapy.log.partition_log import PartitionLog

# How often is looked for the first compacted log: as a cleaner does that has nothing to do, within these limits.
_LEAST_S, _MOST_S = 0.1, 15.0


class Compaction:
    """Life: construct, `configure`, `start`, `configure` again at any time, `stop`."""

    def __init__(self, logs: Iterable[PartitionLog], scheduler: SchedulerLike, clock: Clock) -> None:
        """`logs`: those of the broker, as they are whenever it is iterated."""
        self.settings = CleanerSettings()
        self.cleaner: LogCleaner | None = None  # once there was a compacted log
        self._logs = logs
        self._scheduler = scheduler
        self._clock = clock
        self._lock = threading.Lock()
        self._watch: Any = None
        self._stopped = False

    def start(self) -> None:
        with self._lock:
            if self.settings.enable and not self._stopped:
                period = min(max(self.settings.backoff_ms / 1000, _LEAST_S), _MOST_S)
                self._watch = self._scheduler.schedule("log-cleaner-start", self._look, period, period)

    def configure(self, settings: CleanerSettings) -> None:
        """New settings; a running cleaner begins anew with them."""
        with self._lock:
            self.settings = settings
            if self.cleaner is not None:
                self.cleaner.reconfigure(settings)

    def stop(self) -> None:
        """Gives up what is being cleaned; returns when nothing is cleaned any more. Idempotent."""
        with self._lock:
            self._stopped = True
            self._unwatch()
            if self.cleaner is not None:
                self.cleaner.stop()

    def _look(self) -> None:
        if any(log.config.compact for log in self._logs):
            from kafkapy.log.cleaner.service import LogCleaner

            with self._lock:
                self._unwatch()
                if self.cleaner is None and not self._stopped:
                    self.cleaner = LogCleaner(self._logs, self._clock, self.settings)
                    self.cleaner.start()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
