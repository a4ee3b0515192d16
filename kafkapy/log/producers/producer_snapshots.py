"""Snapshots of the producer state: `OFFSET.snapshot` files (Kafka's ProducerStateManager).

Big-endian: version 1 (int16), CRC-32C of everything after it (uint32), number of producers (int32). Then for each
producer: its id (int64), epoch (int16), last sequence (int32), last offset (int64), last offset minus first offset of
its last batch (int32), that batch's largest timestamp (int64), coordinator epoch (int32), and the first offset of its
open transaction, -1 if there is none (int64).
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from struct import Struct

from kafkapy._ext.crc32c import crc32c
from kafkapy.log import names
from kafkapy.log.loading.load_progress import LoadReport
from kafkapy.log.producers.producer_state import BatchNote, ProducerEntry
from kafkapy.log.storage.files import Files

_log = logging.getLogger(__name__)

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class SnapshotError(ValueError):
    """Raised when a file is not a valid snapshot. The state must be rebuilt from an older snapshot and the log."""


def format_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file with the state of these producers."""
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in _as_java_iterates(entries):
        last = entry.batches[-1] if entry.batches else _NO_BATCH
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    return _HEAD.pack(_VERSION, crc32c(body)) + body


_NO_BATCH = BatchNote(-1, -1, 0, -1)


def _as_java_iterates(entries: Collection[ProducerEntry]) -> Iterator[ProducerEntry]:
    """Yield the entries in the order of a java.util.HashMap<Long, …>, so that the file is identical to Kafka's."""
    buckets = 16
    while len(entries) > buckets * 3 // 4:
        buckets *= 2

    # Buckets instead of sorted(), which would hold the GIL for milliseconds with thousands of producers.
    table: dict[int, list[ProducerEntry]] = {}
    for entry in entries:
        folded = (entry.producer_id ^ entry.producer_id >> 32) & 0xFFFFFFFF
        table.setdefault((folded ^ folded >> 16) & (buckets - 1), []).append(entry)
    for bucket in range(buckets):
        yield from table.get(bucket, ())


def parse_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """Return the producers in `data`, the content of the snapshot file `path`. Raises SnapshotError."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotError(f"{path} has {len(data)} bytes, too few for a snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SnapshotError(f"{path} has version {version}, expected {_VERSION}")
    body = memoryview(data)[_HEAD.size :]
    if crc32c(body) != crc:
        raise SnapshotError(f"{path} has CRC {crc:#010x}, its content has {crc32c(body):#010x}")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise SnapshotError(f"{path} announces {count} producers and has {len(data)} bytes")
    entries = []
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        batches = [BatchNote(sequence, offset, delta, timestamp)] if offset >= 0 else []
        entries.append(
            ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, max(txn_first_offset, -1), batches)
        )
    return entries


_EMPTY = format_snapshot([])  # the snapshot of most logs


class SnapshotFiles:
    """The producer snapshots in one partition's directory. `offsets` has the offset of each snapshot, ascending."""

    __slots__ = ("_contents", "_files", "directory", "offsets", "report", "taken_at")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory
        self.offsets: list[int] = []
        self._contents: dict[int, bytes | None] = {}  # contents of small files, only while the log is loaded
        self.taken_at = 0  # no snapshot is needed at this offset or below
        self.report: LoadReport | None = None  # set only while the log is loaded

    def find(self, contents: Mapping[int, bytes | None]) -> None:
        """Set the snapshots that a directory listing has found: file content by offset, None if the content was not
        read.
        """
        self.offsets = sorted(contents)
        self._contents = dict(contents)

    def loaded(self) -> None:
        """Drop the report and the file contents, which are only needed while the log is loaded."""
        self.report = None
        self._contents = {}

    def report_damage(self, damage: str) -> None:
        """Report a damaged snapshot with the sentence `damage`: as a note in the LoadReport while the log is loaded,
        else in the broker's log.
        """
        if self.report is not None:
            self.report.note(damage)
        else:
            _log.warning("%s", damage)

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def path(self, offset: int) -> str:
        return os.path.join(self.directory, names.file_name(offset, names.SNAPSHOT))

    def read(self, offset: int) -> list[ProducerEntry]:
        """Return the producers in the snapshot file at `offset`. Raises SnapshotError, and FileNotFoundError if there
        is no file.
        """
        data = self._contents.get(offset)
        if data == _EMPTY:
            return []
        path = self.path(offset)
        return parse_snapshot(self._files.read(path) if data is None else data, path)

    def write(self, offset: int, entries: Collection[ProducerEntry], *, sync: bool) -> str:
        """Write a snapshot of these producers at `offset` and return its path. Raises OSError.

        Without `sync`, the caller must have the next flush sync the file.
        """
        path = self.path(offset)
        self._files.write(path, format_snapshot(entries), sync=sync)
        self._contents.pop(offset, None)
        at = bisect_left(self.offsets, offset)
        if self.offsets[at : at + 1] != [offset]:
            self.offsets.insert(at, offset)
        return path

    def _forget(self, offset: int) -> bool:
        """Remove `offset` from the list of snapshots. Return False if there is no snapshot at that offset."""
        self._contents.pop(offset, None)
        at = bisect_left(self.offsets, offset)
        there = self.offsets[at : at + 1] == [offset]
        if there:
            del self.offsets[at]
        return there

    def delete(self, offset: int) -> None:
        """Remove the snapshot file at `offset` if there is one. Raises OSError."""
        if self._forget(offset):
            self._files.unlink(self.path(offset))

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the snapshot at `offset` to `.deleted` and return the new path; None if there is no such snapshot."""
        if not self._forget(offset):
            return None
        path = self.path(offset)
        try:
            self._files.rename(path, path + names.DELETED)
        except FileNotFoundError:
            return None
        return path + names.DELETED

    def delete_all(self) -> None:
        for offset in list(self.offsets):
            self.delete(offset)
        self.taken_at = 0

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Delete the snapshots at or below the log start offset, and those above the log end offset."""
        for offset in list(self.offsets):
            if offset > log_end_offset or offset <= log_start_offset:
                self.delete(offset)

    def delete_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Delete the snapshots at offsets where no segment begins, except the newest one if no segment begins above it.

        That snapshot comes from the last clean shutdown. As ProducerStateManager.removeStraySnapshots.
        """
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        for offset in strays[:-1]:
            self.delete(offset)
        if strays and bases and strays[-1] < max(bases):
            self.delete(strays[-1])
