"""Load and start the log cleaner when the first compacted log appears.

Until then the broker saves the cleaner's threads, memory and import time.
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

# How often to look for the first compacted log, and to retry threads that could not be started: log.cleaner.backoff.ms
# within these limits.
_LEAST_S, _MOST_S = 0.1, 15.0


class Compaction:
    """Starts the LogCleaner, the broker's cleaner threads, when the first compacted log appears.

    Call `configure` first, then `start`, and `stop` at the end. `configure` may be called again at any time in between.
    """

    def __init__(self, logs: Iterable[PartitionLog], scheduler: SchedulerLike, clock: Clock) -> None:
        """`logs` is iterated many times, and must return the broker's present logs each time."""
        self.settings = CleanerSettings()
        self.cleaner: LogCleaner | None = None  # None until the first compacted log
        self._logs = logs
        self._scheduler = scheduler
        self._clock = clock
        self._lock = threading.Lock()
        self._watch: Any = None
        self._stopped = False

    def start(self) -> None:
        with self._lock:
            if self.settings.enable and not self._stopped:
                self._start_watching()

    def _start_watching(self) -> None:
        if self._watch is None:
            period = min(max(self.settings.backoff_ms / 1000, _LEAST_S), _MOST_S)
            self._watch = self._scheduler.schedule("log-cleaner-start", self._look, period, period)

    def configure(self, settings: CleanerSettings) -> None:
        """Use new log.cleaner.* settings from now on. Cleaner threads that run are restarted with the new settings."""
        with self._lock:
            self.settings = settings
            if self.cleaner is not None and not self.cleaner.reconfigure(settings):
                self._start_watching()

    def stop(self) -> None:
        """Abort the cleanings in progress, and return when all cleaner threads have ended. Idempotent."""
        with self._lock:
            self._stopped = True
            self._unwatch()
            if self.cleaner is not None:
                self.cleaner.stop()

    def _look(self) -> None:
        if any(log.config.compact for log in self._logs):
            from kafkapy.log.cleaner.service import LogCleaner

            with self._lock:
                if self._stopped:
                    return
                if self.cleaner is None:
                    self.cleaner = LogCleaner(self._logs, self._clock, self.settings)
                if self.cleaner.start():
                    self._unwatch()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
