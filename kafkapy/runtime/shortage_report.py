"""Logs that a directory cannot be written because its disk is full or another resource runs short."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.runtime.shortage")

REPEAT_S = 60.0
# A full disk still accepts data that fits into allocated blocks, and small records where large ones do not fit. So the
# shortage counts as over when a write has succeeded since the last refusal, and none was refused for this long.
QUIET_S = 5.0


class ShortageReport:
    """Logs one ERROR when writes to a directory begin to fail, one a minute while they fail, and one WARNING when the
    shortage is over.

    There is one report for everything in a directory: logs of clients and coordinators, checkpoints, metadata.
    """

    __slots__ = (
        "_began",
        "_call_later",
        "_check_is_due",
        "_clock",
        "_directory",
        "_last",
        "_lock",
        "_logged_at",
        "_refused",
        "_succeeded",
        "_unreported",
        "lasts",
    )

    def __init__(
        self, directory: str, clock: Clock, call_later: Callable[[Callable[[], object], float], object] | None = None
    ) -> None:
        """`call_later(fn, delay_s)` schedules a call. Without it, the end of the shortage is only noticed at the next
        write."""
        self.lasts = False  # True during a shortage; only then `written` has to be called
        self._directory = directory
        self._clock = clock
        self._call_later = call_later
        self._lock = threading.Lock()
        self._began = 0.0
        self._last = 0.0  # time of the last refused write
        self._logged_at = 0.0  # time of the last log line
        self._refused = 0
        self._unreported = 0  # writes refused since the last log line
        self._succeeded = False  # True if a write has succeeded since the last refused one
        self._check_is_due = False  # True if a call of `_check` is scheduled

    def refused(self, doing: str, reason: str, count: int = 1) -> None:
        """Report that `count` writes failed with `reason`; `doing` describes them, as in "appending to t-0"."""
        with self._lock:
            now = self._last = self._clock.monotonic()
            self._succeeded = False
            began = not self.lasts
            if began:
                self.lasts = True
                self._began, self._refused, self._unreported = now, 0, 0
            self._refused += count
            self._unreported += count
            if not began and now - self._logged_at < REPEAT_S:
                return
            unsaid, lasted = self._unreported, now - self._began
            self._logged_at, self._unreported = now, 0
        free = free_bytes(self._directory)
        if began:
            log.error(
                "%s cannot be written: %s; bytes free: %s. Refused: %s, and everything else that needs space there. "
                "Reads are served; producers retry and succeed once there is space (see docs/full-disk.md)",
                self._directory,
                reason,
                free,
                doing,
            )
        else:
            log.error(
                "%s could not be written for %.0f s: %s; bytes free: %s; writes refused since the last line: %d, the "
                "last one: %s",
                self._directory,
                lasted,
                reason,
                free,
                unsaid,
                doing,
            )

    def written(self) -> None:
        """Report that a write has succeeded. Needs to be called only while `lasts` is True.

        If a write was refused less than QUIET_S seconds ago, the end of the shortage is logged later, even if no
        further write comes.
        """
        with self._lock:
            if not self.lasts:
                return
            wait_s = self._last + QUIET_S - self._clock.monotonic()
            if wait_s > 0:
                self._succeeded = True
                if self._check_is_due or self._call_later is None:
                    return
                self._check_is_due = True
            else:
                self.lasts = False
            refused, lasted = self._refused, self._last - self._began
        if wait_s > 0:
            self._schedule_check(wait_s)
            return
        log.warning(
            "%s can be written again; bytes free: %s; writes refused: %d, in %.0f s",
            self._directory,
            free_bytes(self._directory),
            refused,
            lasted,
        )

    def _schedule_check(self, delay_s: float) -> None:
        assert self._call_later is not None
        try:
            self._call_later(self._check, delay_s)
        except NoThread:  # the write that was reported must not fail for this
            self._check_is_due = False

    def _check(self) -> None:
        """Log the end of the shortage, if no write was refused after the last successful write."""
        with self._lock:
            self._check_is_due = False
            succeeded = self._succeeded
        if succeeded:
            self.written()


def free_bytes(directory: str) -> str:
    """Return the free bytes of the directory's disk that this process may use, as text for log lines; "unknown (...)"
    after an error."""
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return f"unknown ({error.strerror})"
    return str(found.f_bavail * found.f_frsize)
