"""cleaner-offset-checkpoint: up to which offset each compacted log of a log directory is clean.

The file is Kafka's, byte for byte. It is read when somebody first asks, and written at every change: an offset that
outlives its log, or a truncation, would hide records from the cleaner.
"""

from __future__ import annotations

import logging
import threading

from kafkapy.log.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.files import Files

NAME = "cleaner-offset-checkpoint"

_log = logging.getLogger(__name__)


class CleanerOffsets:
    """One a log directory. Every method may wait for the disk; those that change something raise OSError."""

    __slots__ = ("_checkpoint", "_lock", "_offsets")

    def __init__(self, files: Files, log_dir: str) -> None:
        self._checkpoint = OffsetCheckpoint(files, log_dir, NAME)
        self._lock = threading.Lock()
        self._offsets: dict[tuple[str, int], int] | None = None

    def get(self, key: tuple[str, int]) -> int | None:
        """The first offset that is not clean; None: the log was never cleaned. Raises OSError."""
        with self._lock:
            return self._read().get(key)

    def put(self, key: tuple[str, int], offset: int) -> None:
        with self._lock:
            offsets = self._read()
            if offsets.get(key) != offset:
                self._write({**offsets, key: offset})

    def lower(self, key: tuple[str, int], offset: int) -> None:
        """The log was cut off at `offset`."""
        with self._lock:
            offsets = self._read()
            if offsets.get(key, offset) > offset:
                self._write({**offsets, key: offset})

    def remove(self, key: tuple[str, int]) -> None:
        """The log goes, or a new one of this name comes."""
        with self._lock:
            offsets = self._read()
            if key in offsets:
                self._write({other: offset for other, offset in offsets.items() if other != key})

    def _read(self) -> dict[tuple[str, int], int]:
        if self._offsets is None:
            try:
                self._offsets = self._checkpoint.read()
            except CheckpointError as reason:
                _log.warning("%s; every compacted log counts as never cleaned", reason)
                self._offsets = {}
        return self._offsets

    def _write(self, offsets: dict[tuple[str, int], int]) -> None:
        self._checkpoint.write(offsets)
        self._offsets = offsets
