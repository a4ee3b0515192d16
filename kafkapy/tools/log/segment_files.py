"""Readers of the files of a partition directory, for tools that look at them from outside.

They open files read-only, believe nothing that a file says about sizes, and keep at most one chunk or one batch
in memory, so a segment of any length can be read. Layouts: Kafka's `FileLogInputStream` (.log), `OffsetIndex`
(.index), `TimeIndex` (.timeindex), `AbortedTxn` (.txnindex) and `ProducerStateManager` (.snapshot).
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader, read_header
from kafkapy._ext.crc32c import crc32c
from kafkapy.tools.errors import ToolError

LOG_OVERHEAD = 12  # base offset and length, which the length does not count
UP_TO_MAGIC = 17  # what must be there before the format of a batch can be told
SMALLEST_MESSAGE = 14  # Kafka's LegacyRecord.RECORD_OVERHEAD_V0
V2_HEADER = 61
CHUNK = 1 << 20

_PREFIX = struct.Struct(">qiib")
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")


class StoredBatch(NamedTuple):
    """A batch, where it lies in its file, and its bytes (valid until the next batch is asked for)."""

    position: int
    header: BatchHeader
    data: memoryview

    @property
    def crc_is_right(self) -> bool:
        return crc32c(self.data[21:]) == self.header.crc


class OffsetEntry(NamedTuple):
    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    """One producer of a snapshot; `last_offset` is -1 when it has written no data that is still known."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def first_sequence(self) -> int:
        """Sequences wrap within the non-negative int32 (Kafka's DefaultRecordBatch.decrementSequence)."""
        return (self.last_sequence - self.offset_delta) % (1 << 31)


def base_offset_of(path: Path) -> int:
    """The offset in a segment file's name; raises ToolError for a name that is not one of a segment."""
    stem = path.name.partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise ToolError(
            f"{path} is not a segment file: its name does not begin with an offset (as in 00000000000000000042.log)."
        )
    return int(stem)


class LogReader:
    """Walks the batches of one .log file, as far as its size was when it was opened."""

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self._fd).st_size
        self.size = size if limit is None else min(size, limit)
        self._chunk = b""
        self._chunk_start = 0

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        """Whole batches from `position` on; ends where the rest is too short for one, as Kafka's readers do.

        Raises ToolError where the bytes cannot be a batch, or are one of an older message format.
        """
        while self.size - position > UP_TO_MAGIC:
            _, length, _, magic = _PREFIX.unpack_from(self._bytes(position, UP_TO_MAGIC))
            if length < SMALLEST_MESSAGE:
                raise ToolError(
                    f"{self.path} has no batch at position {position}: the length there is {length}, "
                    f"and the smallest message has {SMALLEST_MESSAGE} bytes."
                )
            size = LOG_OVERHEAD + length
            if size > self.size - position:
                return
            self._refuse_other_formats(position, magic, size)
            data = self._bytes(position, size)
            yield StoredBatch(position, read_header(data), data)
            position += size

    def last_offset_at(self, position: int) -> int | None:
        """The last offset of the batch that begins at `position`; None when no whole batch can begin there."""
        if position < 0 or self.size - position < V2_HEADER:
            return None
        _, length, _, magic = _PREFIX.unpack_from(self._bytes(position, UP_TO_MAGIC))
        if length < SMALLEST_MESSAGE or LOG_OVERHEAD + length > self.size - position:
            return None
        self._refuse_other_formats(position, magic, LOG_OVERHEAD + length)
        header = read_header(self._bytes(position, V2_HEADER))
        return int(header.last_offset)

    def _refuse_other_formats(self, position: int, magic: int, size: int) -> None:
        if magic in (0, 1):
            raise ToolError(
                f"{self.path} has message format {magic} at position {position}; "
                "log dump reads format 2 (Kafka 0.11 and later)."
            )
        if magic != 2 or size < V2_HEADER:
            raise ToolError(
                f"{self.path} has no batch at position {position}: magic {magic} and {size} bytes are of no message "
                "format. Is it a Kafka segment?"
            )

    def _bytes(self, position: int, size: int) -> memoryview:
        """`size` bytes, out of a chunk read ahead; a batch longer than a chunk is read whole."""
        start = position - self._chunk_start
        if start < 0 or start + size > len(self._chunk):
            wanted = min(max(size, CHUNK), self.size - position)
            self._chunk = _read_fully(self._fd, wanted, position)
            self._chunk_start = position
            start = 0
            if len(self._chunk) < size:
                raise ToolError(f"{self.path} became shorter while it was being read (at position {position}).")
        return memoryview(self._chunk)[start : start + size]


def _read_fully(fd: int, size: int, position: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(fd, size, position)):
        parts.append(part)
        size -= len(part)
        position += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def offset_entries(path: Path, base_offset: int) -> Iterator[OffsetEntry]:
    """Entries up to the first one of zeros after the first (what a file that was not trimmed still has)."""
    for number, (relative, position) in enumerate(_entries(path, _OFFSET_ENTRY)):
        if relative == 0 and number > 0:
            return
        yield OffsetEntry(base_offset + relative, position)


def time_entries(path: Path, base_offset: int) -> Iterator[TimeEntry]:
    for number, (timestamp, relative) in enumerate(_entries(path, _TIME_ENTRY)):
        if relative == 0 and number > 0:
            return
        yield TimeEntry(timestamp, base_offset + relative)


def aborted_transactions(path: Path) -> Iterator[AbortedTransaction]:
    for fields in _entries(path, _ABORTED):
        entry = AbortedTransaction(*fields)
        if entry.version != 0:
            raise ToolError(
                f"{path} has an aborted transaction of version {entry.version}; only version 0 is known. Is it damaged?"
            )
        yield entry


def producer_entries(path: Path) -> list[ProducerEntry]:
    """The producers of a .snapshot file, in file order; raises ToolError when it is torn or its CRC is wrong."""
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEAD.size:
        raise ToolError(f"{path} is not a producer snapshot: it has {len(data)} bytes, the header alone has 10.")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise ToolError(f"{path} is a producer snapshot of version {version}; only version 1 is known.")
    computed = crc32c(memoryview(data)[6:])
    if computed != crc:
        raise ToolError(f"{path} is damaged: its CRC is {crc}, but that of its content is {computed}.")
    if count < 0 or count * _PRODUCER.size > len(data) - _SNAPSHOT_HEAD.size:
        raise ToolError(f"{path} is damaged: it claims {count} producers and has {len(data)} bytes.")
    end = _SNAPSHOT_HEAD.size + count * _PRODUCER.size
    return [ProducerEntry(*fields) for fields in _PRODUCER.iter_unpack(data[_SNAPSHOT_HEAD.size : end])]


def _entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Entries of an array file; a torn one at the end is left out. Chunks are whole numbers of entries."""
    chunk = layout.size * 4096
    with open(path, "rb") as file:
        while data := file.read(chunk):
            yield from layout.iter_unpack(data[: len(data) - len(data) % layout.size])
