"""A thread that cleans one log after the other (Kafka's LogCleaner.CleanerThread)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kafkapy._ext.key_index import CorruptEntry
from kafkapy.errors import KafkaError
from kafkapy.log.cleaner.candidates import Candidate
from kafkapy.log.cleaner.cleaning import clean
from kafkapy.log.cleaner.stats import CleanerStats
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.upkeep import Interrupted

if TYPE_CHECKING:
    from kafkapy.log.cleaner.service import LogCleaner

_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The cleaner stops: the cleaning in progress is given up."""


class CleanerThread(threading.Thread):
    """Runs from `start` to `stop`. What one log fails of never ends it."""

    def __init__(self, number: int, service: LogCleaner) -> None:
        super().__init__(name=f"log-cleaner-{number}", daemon=True)
        self.last_stats: CleanerStats | None = None  # of the cleaning before
        self.last_delay_ms = 0  # by how much the most overdue log was overdue when that began
        self._service = service
        self._settings = service.settings
        self._stopping = False
        self._log: PartitionLog | None = None  # being cleaned

    def stop(self) -> None:
        """Ends it at the next piece; does not wait. The cleaning in progress is given up."""
        self._stopping = True
        log = self._log
        if log is not None:
            log.upkeep.wake()

    @property
    def is_dead(self) -> bool:
        """Whether it ended without being told to: a bug."""
        return not self._stopping and self.ident is not None and not self.is_alive()

    def run(self) -> None:
        try:
            while not self._stopping:
                cleaned = self._clean_one()
                self._delete_old_segments()
                if not cleaned and not self._stopping:
                    self._service.pause(self._settings.backoff_ms / 1000, lambda: self._stopping)
        except BaseException:
            _log.exception("%s ended, which it never should", self.name)

    def _clean_one(self) -> bool:
        """Whether there was a log to clean."""
        chosen = self._service.choose()
        if chosen is None:
            return False
        self._log = chosen.log
        try:
            self.last_delay_ms = self._service.longest_delay_ms
            self._clean(chosen)
        except (Interrupted, _Stopped):
            _log.info("%s: the cleaning is given up, the log is wanted", chosen.log.name)
        except LogDirFailure:
            pass  # told already
        except OSError as error:
            self._disk_error(chosen.log, error)
        except MemoryError:
            self._service.postpone(chosen.log, "there is not enough memory")
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
            """After every piece: the log may be wanted, the directory offline, the limit on bytes a second reached."""
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
        """A broken disk takes the directory offline; a full one only puts the cleaning off."""
        refusal = log.disk_error(f"cleaning {log.name}", error)
        if not isinstance(refusal, LogDirFailure):
            self._service.postpone(log, refusal.message)

    def _delete_old_segments(self) -> None:
        """Retention of compacted logs is done here, so that it never meets a cleaning."""
        for log in self._service.compacted():
            if self._stopping:
                return
            try:
                log.delete_old_segments()
            except LogDirFailure:
                continue  # told already
            except KafkaError as error:
                _log.warning("retention of %s: %s", log.name, error.message)
            except Exception:  # of a policy that somebody wrote, say: the thread goes on
                _log.exception("retention of %s", log.name)
