"""What the logs of one log directory share: the disk, the clock, background work, whom to tell of a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.errors import KafkaError
from kafkapy.log.cleaner_offsets import CleanerOffsets
from kafkapy.log.failures import LogDirFailure, is_shortage, shortage
from kafkapy.log.files import Files
from kafkapy.record.validation import MAX_DECOMPRESSED
from kafkapy.runtime.clock import Clock

if TYPE_CHECKING:
    from kafkapy.log.retention import RetentionPolicy

DAY_MS = 86_400_000

_log = logging.getLogger(__name__)


class SchedulerLike(Protocol):
    """As runtime.scheduler.Scheduler."""

    def schedule(
        self, name: str, fn: Callable[[], object], delay_s: float = 0.0, period_s: float | None = None
    ) -> object: ...


class PoolLike(Protocol):
    """As runtime.disk_pool.DiskPool."""

    def submit(self, fn: Callable[..., Any], *args: Any) -> None: ...


class Environment:
    """One per log directory; read-only after construction but for `failure`."""

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
        "producer_expiration_ms",
        "retention",
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
        max_decompressed: int = MAX_DECOMPRESSED,
        retention: RetentionPolicy | None = None,
        on_failure: Callable[[LogDirFailure], None] | None = None,
    ) -> None:
        self.log_dir = log_dir
        self.files = files
        self.clock = clock
        self._scheduler = scheduler
        self._pool = pool
        self.producer_expiration_ms = producer_expiration_ms
        self.max_decompressed = max_decompressed
        self.retention = retention
        self.failure: LogDirFailure | None = None
        self.cleaner_offsets = CleanerOffsets(files, log_dir)
        self.upkeep = threading.Condition(threading.Lock())  # of all logs: see Upkeep
        self._on_failure = on_failure

    def failed(self, doing: str, cause: BaseException) -> LogDirFailure:
        """Takes the directory offline and returns the exception to raise. The first failure is the one that counts."""
        failure = LogDirFailure(self.log_dir, doing, cause)
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)
        return failure

    def disk_error(self, doing: str, error: OSError) -> KafkaError:
        """The exception to raise: of a shortage just that, of all else `failed`."""
        return shortage(doing, error) if is_shortage(error) else self.failed(doing, error)

    def check(self) -> None:
        """Raises LogDirFailure once the directory is offline: nothing more is read or written there."""
        if self.failure is not None:
            raise LogDirFailure(self.log_dir, "it failed before", self.failure.cause)

    def later(self, name: str, fn: Callable[[], object], delay_ms: int = 0) -> None:
        """Runs `fn` in the background; an OSError of it that is no shortage takes the directory offline.

        What begins at once goes to the disk pool, so that a slow sync does not hold up the scheduler.
        """

        def guarded() -> None:
            if self.failure is None:
                try:
                    fn()
                except LogDirFailure:
                    return  # told already
                except OSError as error:
                    _log.error("%s", self.disk_error(name, error).message)
                except KafkaError as error:
                    _log.error("%s: %s", name, error.message)

        if self._pool is not None and delay_ms == 0:
            try:
                self._pool.submit(guarded)
            except RuntimeError:
                _log.debug("not done, the broker stops: %s", name)
        else:
            self._scheduler.schedule(name, guarded, delay_ms / 1000)
