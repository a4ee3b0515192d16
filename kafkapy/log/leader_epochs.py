"""The start offsets of leader epochs (Kafka's LeaderEpochFileCache, KIP-101 and KIP-279).

The file `leader-epoch-checkpoint` is written when an epoch begins, before a record of that epoch can be in the log.
After a truncation, the file may still contain removed epochs for a while. If the broker crashes before the file is
rewritten, loading the log removes these epochs again.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from kafkapy.log.directories.checkpoints import CheckpointError, format_lines, numbers, parse_lines
from kafkapy.log.storage.files import TEMPORARY, Files

NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_ONLY_THE_FIRST = format_lines(["0 0"])

_log = logging.getLogger(__name__)


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of one log, ascending by epoch and start offset.

    Readers take no lock: `entries` is an immutable tuple that is replaced at every change.
    """

    __slots__ = ("_closed", "_directory", "_files", "_later", "_lock", "entries", "latest_epoch")

    def __init__(self, files: Files, directory: str, later: Callable[[str, Callable[[], None]], object] | None = None):
        """Create an empty cache for the log in `directory`.

        `later(name, function)` must run the function in the background; if `later` is None, the file is always written
        at once.
        """
        self._files = files
        self._directory = directory
        self._later = later
        self._lock = threading.Lock()
        self._closed = False
        self.entries: tuple[EpochStart, ...] = ()
        self.latest_epoch = UNDEFINED_EPOCH

    @property
    def path(self) -> str:
        return os.path.join(self._directory, NAME)

    def load(self, data: bytes | None = None) -> None:
        """Load the epochs from `data`, the content of the checkpoint file, or from the file itself if `data` is None.

        A file that does not exist counts as empty. Raise CheckpointError if the content is not valid.
        """
        path = self.path
        if data is None:
            try:
                data = self._files.read(path)
            except FileNotFoundError:
                return
        if data == _ONLY_THE_FIRST:  # true for nearly all logs whose leader never changed
            self._assign(0, 0)
            return
        found = [numbers(line, 2, path) for line in parse_lines(data, path)]
        if any(number < 0 for entry in found for number in entry):
            raise CheckpointError(f"{path} has a negative epoch or offset")
        for epoch, start in found:
            self._assign(epoch, start)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`, and make this durable before returning.

        Do nothing if `epoch` is already the latest one and began at or before `start_offset`.

        Recorded epochs that are not lower, or do not begin at a lower offset, are removed. Raises ValueError for a
        negative epoch or offset. If writing the file raises OSError, the cache is unchanged.
        """
        if epoch == self.latest_epoch and self.entries[-1].start_offset <= start_offset:
            return
        with self._lock:
            before = self.entries
            if self._assign(epoch, start_offset):
                self._write_or_keep(before)

    def _assign(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset} is not an entry of {self.path}")
        entries = self.entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        kept = entries
        while kept and (kept[-1].epoch >= epoch or kept[-1].start_offset >= start_offset):
            kept = kept[:-1]
        removed = entries[len(kept) :]
        # An epoch without records is replaced by the next one at the same offset. Any other removal is unexpected.
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            _log.warning("epoch %d at offset %d removes %s from %s", epoch, start_offset, removed, self.path)
        self._set((*kept, EpochStart(epoch, start_offset)))
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that began at `end_offset` or later, and make this durable before returning.

        Kafka rewrites the file in the background. But the next records may belong to an earlier epoch than those that
        are removed. If a crash brought a removed epoch back, the log would claim that these records were of that epoch.
        Followers of this log would then truncate committed records. If writing the file raises OSError, the cache is
        unchanged.
        """
        with self._lock:
            kept, before = self._below(end_offset), self.entries
            if end_offset >= 0 and len(kept) < len(before):
                self._set(kept)
                self._write_or_keep(before)

    def try_truncation(self, end_offset: int) -> None:
        """Raise OSError if `truncate_from_end(end_offset)` would find the disk full or no file descriptor left.

        Called before a truncation of the log changes anything: it writes the epochs to the temporary file only, which
        the next change overwrites, and the next start removes.
        """
        with self._lock:
            kept = self._below(end_offset)
            if len(kept) < len(self.entries):
                self._files.write(self.path + TEMPORARY, _formatted(kept), sync=False)

    def _below(self, offset: int) -> tuple[EpochStart, ...]:
        return tuple(entry for entry in self.entries if entry.start_offset < offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended at or before `start_offset`.

        The epoch that contains this offset now begins there. The file is rewritten in the background.
        """
        with self._lock:
            gone = [entry for entry in self.entries if entry.start_offset <= start_offset]
            if gone:
                first = EpochStart(gone[-1].epoch, start_offset)
                if len(gone) == 1 and first == gone[0]:
                    return
                self._set((first, *self.entries[len(gone) :]))
                self._write_later()

    def replace(self, entries: tuple[EpochStart, ...]) -> None:
        """Use the epochs of another log with the same records, also those that have no records (KAFKA-15608).

        Durable before this returns. Does nothing if the epochs are the same. If writing the file raises OSError, the
        cache is unchanged.
        """
        with self._lock:
            before = self.entries
            if entries != before:
                self._set(entries)
                self._write_or_keep(before)

    def rename(self, directory: str, rename: Callable[[], object]) -> None:
        """Call `rename`, which renames the log's directory to `directory`, while no background write uses a name."""
        with self._lock:
            rename()
            self._directory = directory

    def clear(self) -> None:
        """Remove all epochs, and write the empty checkpoint file at once.

        If writing the file raises OSError, the cache is unchanged.
        """
        with self._lock:
            before = self.entries
            self._set(())
            self._write_or_keep(before)

    def discard(self) -> None:
        """Remove all epochs and delete the file, because batches of message formats 0 and 1 have no leader epoch."""
        with self._lock:
            self._set(())
            if self._files.unlink(self.path):
                _log.warning("%s is removed: the topic's message format has no leader epochs", self.path)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch in which the record at `offset` was written.

        Return UNDEFINED_EPOCH (-1) if `offset` lies below the start of the first known epoch.
        """
        at = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[at - 1].epoch if at else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch up to `epoch`, end offset of that epoch), as an OffsetsForLeaderEpoch response.

        The latest epoch ends at `log_end_offset`. If `epoch` is lower than all known epochs, the result is `epoch`
        itself and the start of the first known epoch (KIP-279). Both values are -1 if `epoch` is -1 or above the latest
        epoch, or no epoch is known.
        """
        entries = self.entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        at = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        return (entries[at - 1].epoch if at else epoch), entries[at].start_offset

    def _set(self, entries: tuple[EpochStart, ...]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    def _write(self) -> None:
        self._files.replace(self.path, _formatted(self.entries))

    def _write_or_keep(self, before: tuple[EpochStart, ...]) -> None:
        """Write the changed epochs. If that raises OSError, the cache has the epochs `before` again, as the file has:
        else the next change could take the file for written.
        """
        try:
            self._write()
        except OSError:
            self._set(before)
            raise

    def _write_later(self) -> None:
        if self._later is None:
            self._write()
        else:
            self._later(f"leader epochs of {self._directory}", self._write_if_there)

    def close(self) -> None:
        """Cancel pending background writes of the file.

        Called when the log's directory is removed, because a new log may take its name.
        """
        with self._lock:
            self._closed = True

    def _write_if_there(self) -> None:
        with self._lock:
            if not self._closed and (self.entries or self._files.exists(self.path)):
                self._write()


def _formatted(entries: tuple[EpochStart, ...]) -> bytes:
    return format_lines(f"{epoch} {start}" for epoch, start in entries)
