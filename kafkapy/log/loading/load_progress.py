"""The progress of loading a log directory, and a report of the repairs that a log needed.

Source: the metrics remainingLogsToRecover and remainingSegmentsToRecover of Kafka's LogManager (KIP-831).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_LINE_EVERY_S = 10.0
_MIB = 1 << 20
_NOTES_SHOWN = 8

_log = logging.getLogger(__name__)


class LoadStopped(Exception):
    """Raised between two segments to end the loading of a log, because the broker stops or the log will be deleted."""


class LoadWatch:
    """Callbacks that a LogLoader calls while it recovers a log. The methods of this base class do nothing."""

    def recovering(self, segments: int) -> None:
        """Called before the recovery of a log with the number of segments that will be checked."""

    def checked(self, size: int) -> None:
        """Called after a segment of `size` bytes was checked. Raises LoadStopped if loading must end."""

    def finished(self) -> None:
        """Called when no more segments of the log will be checked."""


class DirProgress:
    """The loading progress of one log directory: how many logs, segments and bytes to check are left. Any thread may
    read it.
    """

    def __init__(self, path: str, threads: int, logs: int, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._began = self._logged = monotonic()
        self.logs = self.logs_left = logs
        self.segments_left = [0] * threads
        self.bytes = self.bytes_left = 0

    def maybe_log(self) -> None:
        """Log a line about the progress if ten seconds have passed since the last line."""
        now = self._monotonic()
        if now - self._logged >= _LINE_EVERY_S:
            self._logged = now
            _log.info(
                "%s: loaded %d of %d partitions%s", self._path, self.logs - self.logs_left, self.logs, self._checked()
            )

    def log_end(self, not_recovered: int) -> None:
        """Log the last line, after all logs were loaded. `not_recovered`: how many logs could not be loaded."""
        _log.info(
            "%s: loaded %d partitions in %.2f s%s%s",
            self._path,
            self.logs - not_recovered,
            self._monotonic() - self._began,
            self._checked(),
            f"; not recovered: {not_recovered}" if not_recovered else "",
        )

    def _checked(self) -> str:
        if not self.bytes:
            return ""
        return f", {(self.bytes - self.bytes_left) / _MIB:.0f} of {self.bytes / _MIB:.0f} MiB checked"


class LoadReport:
    """Collects notes about the repairs that one log needed while it was loaded, for one log line at the end."""

    def __init__(self) -> None:
        self.notes: list[str] = []  # the first few notes
        self._more = 0
        self._serious = False

    def note(self, text: str, *, serious: bool = True) -> None:
        """Add a sentence about something in the log's directory that was found and repaired.

        `serious`: it is damage, and not a normal consequence of a crash. Then the line is logged as a warning.
        """
        self._serious |= serious
        if len(self.notes) < _NOTES_SHOWN:
            self.notes.append(text)
        else:
            self._more += 1

    def log(self, name: str, start: int, end: int, ms: float, *, recovered: bool) -> None:
        """Log one line with the offsets of the log `name`, the loading time and the notes.

        After a clean shutdown (not `recovered`) nothing is logged if there are no notes.
        """
        if not recovered and not self.notes:
            return
        done = "recovered" if recovered else "repaired"
        line = [f"{name}: {done} offsets {start} to {end} in {ms:.1f} ms", *self.notes]
        if self._more:
            line.append(f"and {self._more} more of the kind")
        _log.log(logging.WARNING if self._serious else logging.INFO, "%s", "; ".join(line))
