"""How far the loading of a log directory is: numbers for the metrics, and a line from time to time.

Source: the metrics remainingLogsToRecover and remainingSegmentsToRecover of Kafka's LogManager (KIP-831).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_LINE_EVERY_S = 10.0
_MIB = 1 << 20

_log = logging.getLogger(__name__)


class LoadStopped(Exception):
    """The loading of a log ends between two segments: the broker stops, or the log is to be deleted."""


class LoadWatch:
    """What a loader tells while it recovers. This one listens to nothing."""

    def recovering(self, segments: int) -> None:
        """So many segments are going to be checked."""

    def checked(self, size: int) -> None:
        """One of them is, of so many bytes. Raises LoadStopped."""

    def finished(self) -> None:
        """None of them is checked any more."""


class DirProgress:
    """The numbers of one directory; read from any thread. Bytes are those that have to be checked."""

    def __init__(self, path: str, threads: int, logs: int, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._began = self._told = monotonic()
        self.logs = self.logs_left = logs
        self.segments_left = [0] * threads
        self.bytes = self.bytes_left = 0

    def tell(self) -> None:
        """A line, if the last one is long ago."""
        now = self._monotonic()
        if now - self._told >= _LINE_EVERY_S:
            self._told = now
            _log.info(
                "%s: loaded %d of %d partitions%s", self._path, self.logs - self.logs_left, self.logs, self._checked()
            )

    def tell_end(self, not_recovered: int) -> None:
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
