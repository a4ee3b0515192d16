"""The log cleaner of a broker: its threads and their shared state (Kafka's LogCleaner and LogCleanerManager)."""

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
from kafkapy.runtime.threads import NoThread

_POSTPONED_S = 60.0  # how long a log is not cleaned after its cleaning found the disk full

_log = logging.getLogger(__name__)


class LogCleaner:
    """The cleaner threads of a broker and the state that they share.

    Call `start`, then `reconfigure` at any time, then `stop`. A log that cannot be cleaned is marked and skipped until
    the broker restarts or the log is created again.
    """

    def __init__(self, logs: Iterable[PartitionLog], clock: Clock, settings: CleanerSettings) -> None:
        """`logs` is iterated many times, and must return the broker's present logs each time."""
        self.settings = settings
        self.throttle = Throttle(settings.max_bytes_per_second, clock)
        self.dirtiest_ratio = 0.0  # when a thread last chose a log
        self.longest_delay_ms = 0  # when a thread last chose a log
        self.last_look = clock.monotonic()
        self.threads: list[CleanerThread] = []
        self._is_short = False  # the last attempt to start a thread failed
        self._logs = logs
        self._clock = clock
        self._choosing = threading.Lock()
        self._waiting = threading.Condition(threading.Lock())
        self._uncleanable: dict[PartitionLog, str] = {}
        self._postponed: dict[PartitionLog, float] = {}  # monotonic time until which the log is skipped

    # --- starting and stopping

    def start(self) -> bool:
        """Start the cleaner threads that are not running.

        Return True if all threads run now, False if some could not be started and `start` must be called again.
        """
        for number in range(len(self.threads), self.settings.threads):
            thread = CleanerThread(number, self)
            try:
                thread.start()
            except NoThread as error:
                if not self._is_short:
                    self._is_short = True
                    _log.error("logs are compacted by %d of %d threads: %s", number, self.settings.threads, error)
                return False
            self.threads.append(thread)
        self._is_short = False
        return True

    def stop(self) -> None:
        """Abort the cleanings in progress, and return when all cleaner threads have ended."""
        threads, self.threads = self.threads, []
        for thread in threads:
            thread.stop()
        with self._waiting:
            self._waiting.notify_all()
        for thread in threads:
            thread.join()

    def reconfigure(self, settings: CleanerSettings) -> bool:
        """Restart all threads with new settings, as Kafka does, which also replaces threads that died.

        Return False if some threads could not be started and `start` must be called again. Does nothing and returns
        True if the settings have not changed.
        """
        if settings == self.settings:
            return True
        _log.info("the cleaner restarts with %s", settings)
        self.stop()
        self.settings = settings
        self.throttle.set_rate(settings.max_bytes_per_second)
        return self.start()

    def pause(self, seconds: float, stopped: Callable[[], bool]) -> None:
        """Wait until `seconds` have passed or `stopped()` returns True. A cleaner thread calls this if no log needs
        cleaning.
        """
        deadline = self._clock.monotonic() + seconds
        with self._waiting:
            while not stopped() and self._clock.monotonic() < deadline:
                self._clock.wait_until(self._waiting, deadline)

    # --- choosing the next log

    def compacted(self) -> Iterator[PartitionLog]:
        """Yield the compacted logs that are open, in an online log directory, and not marked as uncleanable.

        A log that is being moved to another directory is left out: see kafkapy.log.moves.futures.
        """
        for log in self._logs:
            if (
                log.config.compact
                and not log.closed
                and log.future is None
                and log.env.failure is None
                and log not in self._uncleanable
            ):
                yield log

    def choose(self) -> Candidate | None:
        """Return the Candidate of the log that needs cleaning most, or None if no log needs cleaning.

        This thread then holds the log's `upkeep` lock, and the caller must release it with `upkeep.end()`.
        """
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
                    # Between the first check and try_begin another thread may have cleaned, truncated or deleted this
                    # log, or begun to move it.
                    again = None if one.log.closed or one.log.future is not None else self._look_at(one.log)
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
                # The first check is made without the `upkeep` lock. Since `get` the topic may have been deleted and
                # created again, or the log cleaned. `correct` replaces the offset only if it is still the one that was
                # read.
                log.env.cleaner_offsets.correct(key, cleaned_to, chosen.first_dirty)
            return chosen
        except FileNotFoundError:
            return None  # the log was deleted meanwhile
        except OSError as error:
            refusal = log.disk_error(f"finding what to clean of {log.name}", error)
            if not isinstance(refusal, LogDirFailure):
                self.postpone(log, refusal.message)
        except MemoryError:
            self.postpone(log, "there is not enough memory")
        # for instance damage: an error in one log must not keep the others from being cleaned
        except Exception as reason:
            _log.exception("cannot determine what to clean of %s", log.name)
            self.mark_uncleanable(log, f"{type(reason).__name__}: {reason}")
        return None

    # --- logs that are skipped

    def mark_uncleanable(self, log: PartitionLog, why: str) -> None:
        """Skip this log until the broker restarts, because cleaning it failed. `why` is logged as an error."""
        _log.error("%s cannot be cleaned, and is not cleaned again until the broker restarts: %s", log.name, why)
        self._uncleanable[log] = why

    def postpone(self, log: PartitionLog, why: str) -> None:
        """Do not clean this log for a minute. `why` is logged as a warning."""
        _log.warning("%s is cleaned later: %s", log.name, why)
        self._postponed[log] = self._clock.monotonic() + _POSTPONED_S

    def _forget_gone(self) -> None:
        """Remove logs that no longer exist from the sets of uncleanable and postponed logs."""
        if self._uncleanable or self._postponed:
            here = set(self._logs)
            for marks in (self._uncleanable, self._postponed):
                for log in list(marks):  # a copy, because other threads may add marks meanwhile
                    if log not in here:
                        del marks[log]

    # --- metrics

    @property
    def last_stats(self) -> list[CleanerStats]:
        """Return the statistics of the last cleaning of each cleaner thread, without threads that have not cleaned any
        log yet.
        """
        return [thread.last_stats for thread in self.threads if thread.last_stats is not None]

    @property
    def ms_since_last_look(self) -> int:
        return int((self._clock.monotonic() - self.last_look) * 1000)

    @property
    def dead_threads(self) -> int:
        return sum(thread.is_dead for thread in self.threads)

    def uncleanable_in(self, log_dir: str) -> list[PartitionLog]:
        """Return the logs in the log directory `log_dir` that are marked as uncleanable."""
        here = set(self._logs)
        return [log for log in list(self._uncleanable) if log.env.log_dir == log_dir and log in here]

    def uncleanable_bytes_in(self, log_dir: str) -> int:
        """Return the number of dirty bytes in the uncleanable logs of the log directory `log_dir`."""
        return sum(self._dirty_bytes(log) for log in self.uncleanable_in(log_dir))

    def _dirty_bytes(self, log: PartitionLog) -> int:
        try:
            chosen = candidate(log, log.env.cleaner_offsets.get((log.topic, log.partition)), self._clock.time_ms())
        except OSError:
            return 0  # the error takes the log directory offline elsewhere
        return chosen.cleanable_bytes
