"""The log cleaner of a broker: its threads, and what they share (Kafka's LogCleaner and LogCleanerManager)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator

from kafkapy.log.cleaner.candidates import Candidate, candidate
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.cleaner.stats import CleanerStats
from kafkapy.log.cleaner.throttle import Throttle
from kafkapy.log.cleaner.worker import CleanerThread
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import PartitionLog
from kafkapy.runtime.clock import Clock

_POSTPONED_S = 60.0  # a log that met a full disk is left alone for so long

_log = logging.getLogger(__name__)


class LogCleaner:
    """Life: construct, `start`, `reconfigure` as often as one likes, `stop`.

    A log that cannot be cleaned is marked and left alone from then on, until the broker starts again or the log is
    made anew.
    """

    def __init__(self, logs: Iterable[PartitionLog], clock: Clock, settings: CleanerSettings) -> None:
        """`logs`: those of the broker, as they are whenever it is iterated."""
        self.settings = settings
        self.throttle = Throttle(settings.max_bytes_per_second, clock)
        self.dirtiest_ratio = 0.0  # at the last look
        self.longest_delay_ms = 0  # at the last look
        self.last_look = clock.monotonic()
        self.threads: list[CleanerThread] = []
        self._logs = logs
        self._clock = clock
        self._choosing = threading.Lock()
        self._waiting = threading.Condition(threading.Lock())
        self._uncleanable: dict[PartitionLog, str] = {}
        self._postponed: dict[PartitionLog, float] = {}  # until when

    # --- life

    def start(self) -> None:
        self.threads = [CleanerThread(number, self) for number in range(self.settings.threads)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Gives up what is being cleaned; returns when all threads have ended."""
        threads, self.threads = self.threads, []
        for thread in threads:
            thread.stop()
        with self._waiting:
            self._waiting.notify_all()
        for thread in threads:
            thread.join()

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Begins anew with other settings, as Kafka does: threads that died are replaced, too."""
        if settings == self.settings:
            return
        _log.info("the cleaner begins anew with %s", settings)
        self.stop()
        self.settings = settings
        self.throttle.set_rate(settings.max_bytes_per_second)
        self.start()

    def pause(self, seconds: float, stopped: Callable[[], bool]) -> None:
        """For a thread that found nothing to do."""
        deadline = self._clock.monotonic() + seconds
        with self._waiting:
            while not stopped() and self._clock.monotonic() < deadline:
                self._clock.wait_until(self._waiting, deadline)

    # --- which log next

    def compacted(self) -> Iterator[PartitionLog]:
        """The logs that the cleaner is there for and may touch now."""
        for log in self._logs:
            if log.config.compact and not log.closed and log.env.failure is None and log not in self._uncleanable:
                yield log

    def choose(self) -> Candidate | None:
        """The log that needs it most, with its upkeep begun: the caller ends that. None: nothing to do."""
        with self._choosing:
            self._forget_gone()
            self.last_look = self._clock.monotonic()
            found = [one for one in map(self._look_at, self.compacted()) if one is not None]
            found = [one for one in found if one.clean_bytes + one.cleanable_bytes > 0]
            self.dirtiest_ratio = max((one.dirty_ratio for one in found), default=0.0)
            self.longest_delay_ms = max((one.delay_ms for one in found), default=0)
            due = [one for one in found if one.is_due and self._postponed.get(one.log, 0.0) <= self.last_look]
            for one in sorted(due, key=lambda one: one.dirty_ratio, reverse=True):
                if one.log.upkeep.try_begin():
                    # Once more: it was anyone's until now.
                    again = None if one.log.closed else self._look_at(one.log)
                    if again is not None and again.is_due:
                        return again
                    one.log.upkeep.end()
            return None

    def _look_at(self, log: PartitionLog) -> Candidate | None:
        key = (log.topic, log.partition)
        try:
            cleaned_to = log.env.cleaner_offsets.get(key)
            chosen = candidate(log, cleaned_to, self._clock.time_ms())
            if cleaned_to is not None and chosen.first_dirty != cleaned_to:
                log.env.cleaner_offsets.put(key, chosen.first_dirty)
            return chosen
        except FileNotFoundError:
            return None  # deleted meanwhile
        except OSError as error:
            refusal = log.disk_error(f"looking what there is to clean of {log.name}", error)
            if not isinstance(refusal, LogDirFailure):
                self.postpone(log, refusal.message)
        except Exception as reason:  # damage, say: what one log fails of must not keep the others from being cleaned
            _log.exception("it cannot be told what there is to clean of %s", log.name)
            self.mark_uncleanable(log, f"{type(reason).__name__}: {reason}")
        return None

    # --- logs that are left alone

    def mark_uncleanable(self, log: PartitionLog, why: str) -> None:
        _log.error("%s cannot be cleaned and is left alone until the broker starts again: %s", log.name, why)
        self._uncleanable[log] = why

    def postpone(self, log: PartitionLog, why: str) -> None:
        _log.warning("%s is cleaned later: %s", log.name, why)
        self._postponed[log] = self._clock.monotonic() + _POSTPONED_S

    def _forget_gone(self) -> None:
        if self._uncleanable or self._postponed:
            here = set(self._logs)
            for marks in (self._uncleanable, self._postponed):
                for log in list(marks):  # at once: other threads add to it
                    if log not in here:
                        del marks[log]

    # --- numbers

    @property
    def last_stats(self) -> list[CleanerStats]:
        """Of the last cleaning of each thread that did one."""
        return [thread.last_stats for thread in self.threads if thread.last_stats is not None]

    @property
    def ms_since_last_look(self) -> int:
        return int((self._clock.monotonic() - self.last_look) * 1000)

    @property
    def dead_threads(self) -> int:
        return sum(thread.is_dead for thread in self.threads)

    def uncleanable_in(self, log_dir: str) -> list[PartitionLog]:
        """The logs in one of log.dirs that are left alone."""
        here = set(self._logs)
        return [log for log in list(self._uncleanable) if log.env.log_dir == log_dir and log in here]

    def uncleanable_bytes_in(self, log_dir: str) -> int:
        """What would be cleaned of them."""
        return sum(self._dirty_bytes(log) for log in self.uncleanable_in(log_dir))

    def _dirty_bytes(self, log: PartitionLog) -> int:
        try:
            chosen = candidate(log, log.env.cleaner_offsets.get((log.topic, log.partition)), self._clock.time_ms())
        except OSError:
            return 0  # its directory is about to go offline
        return chosen.cleanable_bytes
