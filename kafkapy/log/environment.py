"""The objects that all logs of one log directory share: files, clock, background work, failure handling."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.errors import KafkaError
from kafkapy.log.cleaner.offsets import CleanerOffsets
from kafkapy.log.failures import LogDirFailure, Shortage, is_shortage
from kafkapy.log.storage.files import Files
from kafkapy.record.validation import MAX_DECOMPRESSED
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.shortage_report import ShortageReport
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.log.retention.policy import RetentionPolicy

DAY_MS = 86_400_000

_log = logging.getLogger(__name__)


class SchedulerLike(Protocol):
    """The part of runtime.scheduler.Scheduler that the logs use: run a function after a delay, once or periodically."""

    def schedule(
        self, name: str, fn: Callable[[], object], delay_s: float = 0.0, period_s: float | None = None
    ) -> object: ...


class PoolLike(Protocol):
    """The part of runtime.disk_pool.DiskPool that the logs use: run a function on a thread of the pool."""

    def submit(self, fn: Callable[..., Any], *args: Any) -> None: ...


class Environment:
    """The objects that all logs of one log directory share.

    Only `producer_expiration_ms` and `failure` change after construction. `failure` is None while the directory is
    online, and then the error that took the directory offline.
    """

    __slots__ = (
        "_on_failure",
        "_pool",
        "_scheduler",
        "cleaner_offsets",
        "clock",
        "failure",
        "files",
        "log_dir",
        "max_decompressed",
        "max_producers",
        "on_flush_ms",
        "producer_expiration_ms",
        "retention",
        "shortage",
        "upkeep",
    )

    def __init__(
        self,
        log_dir: str,
        files: Files,
        clock: Clock,
        scheduler: SchedulerLike,
        *,
        pool: PoolLike | None = None,
        producer_expiration_ms: int = DAY_MS,
        max_producers: int = sys.maxsize,
        max_decompressed: int = MAX_DECOMPRESSED,
        retention: RetentionPolicy | None = None,
        on_failure: Callable[[LogDirFailure], None] | None = None,
        on_flush_ms: Callable[[int], object] = lambda flush_ms: None,
    ) -> None:
        """Store the shared objects. `on_failure` is called when the directory goes offline.

        `on_flush_ms` is called with the flush.ms of each log that is opened or gets new settings (see TimedFlush).
        """
        self.log_dir = log_dir
        self.files = files
        self.clock = clock
        self._scheduler = scheduler
        self._pool = pool
        self.producer_expiration_ms = producer_expiration_ms
        self.max_producers = max_producers
        self.max_decompressed = max_decompressed
        self.retention = retention
        self.failure: LogDirFailure | None = None
        self.cleaner_offsets = CleanerOffsets(files, log_dir)
        self.upkeep = threading.Condition(threading.Lock())  # shared by all logs of the directory: see Upkeep
        self.shortage = ShortageReport(
            log_dir, clock, lambda fn, delay_s: scheduler.schedule("full-disk-check", fn, delay_s)
        )
        self._on_failure = on_failure
        self.on_flush_ms = on_flush_ms

    def failed(self, doing: str, cause: BaseException) -> LogDirFailure:
        """Take the log directory offline because of `cause`, and return the LogDirFailure that the caller must raise.

        `doing` says in which operation the error occurred. Only the first failure is stored in `failure` and reported
        to `on_failure`.
        """
        failure = LogDirFailure(self.log_dir, doing, cause)
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)
        return failure

    def disk_error(self, doing: str, error: OSError) -> KafkaError:
        """Return the exception that the caller must raise for an OSError in the operation `doing`.

        For a shortage of disk space, memory or file descriptors this is a Shortage. Any other error takes the log
        directory offline, and the exception is a LogDirFailure.
        """
        return self.refuse(doing, error) if is_shortage(error) else self.failed(doing, error)

    def refuse(self, doing: str, error: OSError, count: int = 1) -> KafkaError:
        """Return the Shortage to raise for `count` writes that were refused because of a full disk or another shortage.

        The shortage is also logged, once for the whole log directory (see ShortageReport).
        """
        self.shortage.refused(doing, error.strerror or str(error), count)
        return Shortage(doing, error)

    def check(self) -> None:
        """Raise LogDirFailure if the log directory is offline, so that nothing more is read or written in it."""
        if self.failure is not None:
            raise LogDirFailure(self.log_dir, "it failed before", self.failure.cause)

    def later(self, name: str, fn: Callable[[], object], delay_ms: int = 0) -> None:
        """Run `fn` in the background, unless the log directory is offline by then. Errors of `fn` are logged.

        An OSError that is not a shortage also takes the directory offline.

        Without a delay, `fn` runs in the disk pool, so that a slow sync does not hold up the scheduler. With a delay,
        the scheduler's thread runs it.
        """

        def guarded() -> None:
            if self.failure is None:
                try:
                    fn()
                except LogDirFailure:
                    return  # already reported by `failed`
                except OSError as error:
                    refusal = self.disk_error(name, error)  # a shortage is reported by `refuse`
                    level = logging.ERROR if isinstance(refusal, LogDirFailure) else logging.DEBUG
                    _log.log(level, "%s", refusal.message)
                except KafkaError as error:
                    level = logging.DEBUG if isinstance(error, Shortage) else logging.ERROR
                    _log.log(level, "%s: %s", name, error.message)

        if self._pool is not None and delay_ms == 0:
            try:
                self._pool.submit(guarded)
                return
            except PoolStopped:
                _log.debug("left out because the broker stops: %s", name)
                return
            except NoThread as error:
                _log.warning("run on the scheduler's thread: %s: %s", name, error)
        self._scheduler.schedule(name, guarded, delay_ms / 1000)
