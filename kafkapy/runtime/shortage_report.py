"""Logs that a directory cannot be written because its disk is full or another resource runs short."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.runtime.shortage")

REPEAT_S = 60.0
# A full disk still accepts data that fits into allocated blocks, and small records where large ones do not fit. So the
# shortage counts as over when a write succeeds and none was refused for this long.
QUIET_S = 5.0


class ShortageReport:
    """Logs one ERROR when writes begin to fail, one a minute while they do, and one WARNING when it is over.

    There is one report for everything in a directory: logs of clients and coordinators, checkpoints, metadata.
    """

    __slots__ = ("_began", "_clock", "_directory", "_last", "_lock", "_logged_at", "_refused", "_unreported", "lasts")

    def __init__(self, directory: str, clock: Clock) -> None:
        self.lasts = False  # True during a shortage; only then `written` has to be called
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._began = 0.0
        self._last = 0.0  # time of the last refused write
        self._logged_at = 0.0  # time of the last log line
        self._refused = 0
        self._unreported = 0  # writes refused since the last log line

    def refused(self, doing: str, reason: str, count: int = 1) -> None:
        """Report that `count` writes failed with `reason`; `doing` describes them, as in "appending to t-0"."""
        with self._lock:
            now = self._last = self._clock.monotonic()
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
        """Report that a write has succeeded. Needs to be called only while `lasts`."""
        with self._lock:
            now = self._clock.monotonic()
            if not self.lasts or now - self._last < QUIET_S:
                return
            self.lasts = False
            refused, lasted = self._refused, self._last - self._began
        log.warning(
            "%s can be written again; bytes free: %s; writes refused: %d, in %.0f s",
            self._directory,
            free_bytes(self._directory),
            refused,
            lasted,
        )


def free_bytes(directory: str) -> str:
    """Return the bytes of the disk available to this process, as text for log lines."""
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return f"unknown ({error.strerror})"
    return str(found.f_bavail * found.f_frsize)
