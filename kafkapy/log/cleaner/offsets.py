"""cleaner-offset-checkpoint: the offset up to which each compacted log of a log directory is clean.

The format of the file is Kafka's. The file is read on first use and written at every change: if an offset stayed in the
file after the deletion or truncation of its log, the cleaner would skip records.
"""

from __future__ import annotations

import logging
import threading

from kafkapy.log.directories.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.storage.files import Files

NAME = "cleaner-offset-checkpoint"

_log = logging.getLogger(__name__)


class CleanerOffsets:
    """The content of a log directory's cleaner-offset-checkpoint: by (topic, partition), the first offset that is not
    clean.

    Every method may wait for the disk; the methods that change an offset raise OSError.
    """

    __slots__ = ("_checkpoint", "_lock", "_offsets")

    def __init__(self, files: Files, log_dir: str) -> None:
        self._checkpoint = OffsetCheckpoint(files, log_dir, NAME)
        self._lock = threading.Lock()
        self._offsets: dict[tuple[str, int], int] | None = None

    def get(self, key: tuple[str, int]) -> int | None:
        """Return the first offset that is not clean in the log `key`, None if this log was never cleaned. Raises
        OSError.
        """
        with self._lock:
            return self._read().get(key)

    def put(self, key: tuple[str, int], offset: int) -> None:
        """Set the first offset that is not clean in the log `key`, and write the checkpoint file."""
        with self._lock:
            offsets = self._read()
            if offsets.get(key) != offset:
                self._write({**offsets, key: offset})

    def correct(self, key: tuple[str, int], wrong: int, offset: int) -> None:
        """Replace the offset of the log `key` by `offset` if the stored offset is still `wrong`.

        Another offset means that the log was cleaned, or deleted and created again, since the caller read `wrong`.
        """
        with self._lock:
            offsets = self._read()
            if offsets.get(key) == wrong:
                self._write({**offsets, key: offset})

    def lower(self, key: tuple[str, int], offset: int) -> None:
        """Lower the offset of the log `key` to `offset`, because the log is truncated to `offset`. A lower offset
        stays.
        """
        with self._lock:
            offsets = self._read()
            if offsets.get(key, offset) > offset:
                self._write({**offsets, key: offset})

    def remove(self, key: tuple[str, int]) -> None:
        """Remove the offset of the log `key`, because the log is deleted or about to be created."""
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
