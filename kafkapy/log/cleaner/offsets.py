"""cleaner-offset-checkpoint: the offset up to which each compacted log of a log directory is clean.

The file is identical to Kafka's. It is read on first use and written at every change, because an offset that outlives
its log or a truncation would keep the cleaner from records.
"""

from __future__ import annotations

import logging
import threading

from kafkapy.log.directories.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.storage.files import Files

NAME = "cleaner-offset-checkpoint"

_log = logging.getLogger(__name__)


class CleanerOffsets:
    """The cleaner offsets of one log directory.

    Every method may wait for the disk; those that change an offset raise OSError.
    """

    __slots__ = ("_checkpoint", "_lock", "_offsets")

    def __init__(self, files: Files, log_dir: str) -> None:
        self._checkpoint = OffsetCheckpoint(files, log_dir, NAME)
        self._lock = threading.Lock()
        self._offsets: dict[tuple[str, int], int] | None = None

    def get(self, key: tuple[str, int]) -> int | None:
        """Return the first offset that is not clean, None if the log was never cleaned. Raises OSError."""
        with self._lock:
            return self._read().get(key)

    def put(self, key: tuple[str, int], offset: int) -> None:
        """Set the offset of a log."""
        with self._lock:
            offsets = self._read()
            if offsets.get(key) != offset:
                self._write({**offsets, key: offset})

    def correct(self, key: tuple[str, int], wrong: int, offset: int) -> None:
        """Replace `wrong` by `offset`, unless the offset has changed because the log was cleaned or created again."""
        with self._lock:
            offsets = self._read()
            if offsets.get(key) == wrong:
                self._write({**offsets, key: offset})

    def lower(self, key: tuple[str, int], offset: int) -> None:
        """Lower the offset of a log that is truncated to `offset`."""
        with self._lock:
            offsets = self._read()
            if offsets.get(key, offset) > offset:
                self._write({**offsets, key: offset})

    def remove(self, key: tuple[str, int]) -> None:
        """Remove the offset of a log that is deleted, or about to be created."""
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
