"""A thread that cleans one log after the other (Kafka's LogCleaner.CleanerThread)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy._ext.key_index import CorruptEntry
from kafkapy.errors import KafkaError
from kafkapy.log.cleaner.candidates import Candidate
from kafkapy.log.cleaner.cleaning import clean
from kafkapy.log.cleaner.stats import CleanerStats
from kafkapy.log.failures import LogDirFailure, Shortage
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.segments.upkeep import Interrupted
from kafkapy.runtime.threads import Thread

if TYPE_CHECKING:
    from kafkapy.log.cleaner.service import LogCleaner

_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """Raised to abort the cleaning in progress, because the cleaner stops."""


class CleanerThread(Thread):
    """A thread that cleans logs from `start` to `stop`. A failure of one log never ends the thread."""

    def __init__(self, number: int, service: LogCleaner) -> None:
        super().__init__(self._clean_until_stopped, f"log-cleaner-{number}")
        self.last_stats: CleanerStats | None = None  # of the last finished cleaning
        self.last_delay_ms = 0  # how overdue the most overdue log was when the last cleaning began
        self._service = service
        self._settings = service.settings
        self._stopping = False
        self._log: PartitionLog | None = None  # the log that is being cleaned

    def stop(self) -> None:
        """Tell the thread to end, and to abort the cleaning in progress after the present read or write. Does
        not wait.
        """
        self._stopping = True
        log = self._log
        if log is not None:
            log.upkeep.wake()

    @property
    def is_dead(self) -> bool:
        """Return True if the thread ended although `stop` was not called, which is a bug."""
        return not self._stopping and self.ident is not None and not self.is_alive()

    def _clean_until_stopped(self) -> None:
        try:
            while not self._stopping:
                cleaned = self._clean_one()
                self._delete_old_segments()
                if not cleaned and not self._stopping:
                    self._service.pause(self._settings.backoff_ms / 1000, lambda: self._stopping)
        except BaseException:
            _log.exception("%s ended unexpectedly", self.name)

    def _clean_one(self) -> bool:
        """Clean the log that needs cleaning most. Return False if no log needs cleaning.

        If the cleaning fails, the log is postponed or marked as uncleanable, and no exception is raised.
        """
        chosen = self._service.choose()
        if chosen is None:
            return False
        self._log = chosen.log
        try:
            self.last_delay_ms = self._service.longest_delay_ms
            self._clean(chosen)
        except (Interrupted, _Stopped):
            _log.info("%s: the cleaning is aborted: the cleaner stops, or another task needs the log", chosen.log.name)
        except LogDirFailure:
            pass  # already reported by Environment.failed
        except OSError as error:
            self._disk_error(chosen.log, error)
        except MemoryError:
            self._service.postpone(chosen.log, "there is not enough memory")
        except Shortage as shortage:
            self._service.postpone(chosen.log, shortage.message)
        except (CorruptEntry, KafkaError) as reason:
            self._service.mark_uncleanable(chosen.log, str(reason))
        except Exception as reason:
            _log.exception("%s cannot be cleaned", chosen.log.name)
            self._service.mark_uncleanable(chosen.log, f"{type(reason).__name__}: {reason}")
        finally:
            self._log = None
            chosen.log.upkeep.end()
        return True

    def _clean(self, chosen: Candidate) -> None:
        log = chosen.log

        def pace(size: int) -> None:
            """Wait as long as the rate limit requires after reading or writing `size` bytes.

            Raises _Stopped if the cleaner stops, Interrupted if a truncation or deletion needs the log, LogDirFailure
            if the log directory is offline.
            """
            if self._stopping:
                raise _Stopped
            log.upkeep.check()
            log.env.check()
            wait = self._service.throttle.take(size)
            if wait > 0:
                log.upkeep.pause(log.clock, wait, lambda: self._stopping)
                if self._stopping:
                    raise _Stopped
                log.upkeep.check()

        end, stats = clean(chosen, self._settings, pace)
        log.env.cleaner_offsets.put((log.topic, log.partition), end)
        self.last_stats = stats
        _log.info("%s", stats.line(log.name, chosen.first_dirty, end))

    def _disk_error(self, log: PartitionLog, error: OSError) -> None:
        """Handle an OSError during a cleaning.

        A broken disk takes the log directory offline; a shortage, such as a full disk, only postpones the cleaning of
        the log.
        """
        refusal = log.disk_error(f"cleaning {log.name}", error)
        if not isinstance(refusal, LogDirFailure):
            self._service.postpone(log, refusal.message)

    def _delete_old_segments(self) -> None:
        """Delete old segments of compacted logs by the retention settings, on this thread, so that no log is cleaned
        meanwhile.

        Errors are logged.
        """
        for log in self._service.compacted():
            if self._stopping:
                return
            try:
                log.delete_old_segments()
            except LogDirFailure:
                continue  # already reported by Environment.failed
            except KafkaError as error:
                _log.warning("retention of %s: %s", log.name, error.message)
            except Exception:  # for instance in a retention policy that a user wrote: the thread must survive
                _log.exception("retention of %s", log.name)
