"""The reader of .log files, for those that look at them from outside: every message format, and any mixture.

It opens files read-only, believes nothing that a file says about sizes, and keeps at most one chunk or one batch in
memory, so that a segment of any length can be read. Source: Kafka's `FileLogInputStream`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader, CorruptBatch
from kafkapy._ext.crc32 import crc32
from kafkapy._ext.crc32c import crc32c
from kafkapy.log.names import MAX_OFFSET
from kafkapy.log.offline.errors import OfflineError
from kafkapy.record.batch import Record, payload_of, records_of
from kafkapy.record.legacy import Entry, iter_entries, read_entry

LOG_OVERHEAD = 12  # base offset and length, which the length does not count
UP_TO_MAGIC = 17  # what must be there before the format of a batch can be told
SMALLEST_MESSAGE = 14  # Kafka's LegacyRecord.RECORD_OVERHEAD_V0
V2_HEADER = 61
CHUNK = 1 << 20

# Batches above this are rare, lengths above this in a damaged file are not: its checksum is made from the file, in
# chunks, before so much memory is taken.
LARGE = 32 << 20

_PREFIX = Struct(">qiib")
# By magic: where the checksum (4 bytes) is, and where what it covers begins, behind it.
_CRC_AT = {0: 12, 1: 12, 2: 17}
_CRC_FROM = {magic: at + 4 for magic, at in _CRC_AT.items()}


class StoredBatch(NamedTuple):
    """A batch of format 2, or a message or compressed wrapper of formats 0 and 1: where it lies in its file, and its
    bytes (valid until the next one is asked for). What `header` answers is alike for all of them."""

    position: int
    header: Entry
    data: memoryview

    @property
    def crc_is_right(self) -> bool:
        crc = crc32c if self.header.magic == 2 else crc32
        return crc(self.data[_CRC_FROM[self.header.magic] :]) == self.header.crc

    @property
    def end(self) -> int:
        """Where the next batch begins."""
        return self.position + self.header.size

    @property
    def place(self) -> str:
        """Which one it is, for a sentence."""
        head = self.header
        if isinstance(head, BatchHeader):
            return f"batch at position {self.position} (base offset {head.base_offset})"
        return f"message at position {self.position} (offset {head.offset})"

    def records(self) -> list[Record]:
        """As a consumer gets them: absolute offsets, timestamps of the log. Raises ValueError."""
        return records_of(self.data, self.header)

    def checksums(self) -> list[tuple[bool, int]]:
        """Of formats 0 and 1, where every message has one: for each of `records`, whether it is right, and it.

        Raises ValueError.
        """
        if self.header.codec == 0:
            return [(self.crc_is_right, self.header.crc)]
        inner = memoryview(payload_of(self.data, self.header))
        return [
            (crc32(inner[one.position + 16 : one.position + one.size]) == one.crc, one.crc)
            for one in iter_entries(inner)
        ]


def is_offset(stem: str) -> bool:
    """Whether a file's name without its suffix is that of a segment."""
    return stem.isascii() and stem.isdigit() and len(stem) <= 20 and int(stem) <= MAX_OFFSET


def base_offset_of(path: Path) -> int:
    """The offset in a segment file's name; raises OfflineError for a name that is not one of a segment."""
    stem = path.name.partition(".")[0]
    if not is_offset(stem):
        raise OfflineError(
            f"{path} is not a segment file: its name does not begin with an offset (as in 00000000000000000042.log)."
        )
    return int(stem)


class LogReader:
    """Walks the batches of one .log file, as far as its size was when it was opened (or by `refresh`)."""

    def __init__(self, path: Path, limit: int | None = None, *, chunk: int = CHUNK) -> None:
        """`limit`: how many bytes to look at, all by default; `chunk`: how many are read at once. Raises OSError."""
        self.path = path
        self._size_of_chunk = chunk
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self.fd).st_size
        self.size = size if limit is None else min(size, limit)
        self._chunk = b""
        self._chunk_start = 0

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        os.close(self.fd)

    def refresh(self) -> int:
        """Looks how long the file is now; returns that."""
        self.size = os.fstat(self.fd).st_size
        self._chunk = b""
        return self.size

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        """Whole batches from `position` on; ends where the rest is too short for one, as Kafka's readers do.

        Raises OfflineError where the bytes cannot be a batch.
        """
        while self.size - position > UP_TO_MAGIC:
            size, magic = self._look(position)
            if size > self.size - position:
                return
            if size > LARGE and not self._crc_of_large(position, size, magic):
                raise OfflineError(
                    f"{self.path} is damaged at position {position}: a batch of {size} bytes is said to begin there, "
                    "and its CRC is wrong."
                )
            data = self._bytes(position, size)
            yield StoredBatch(position, self._header(position, data), data)
            position += size

    def header_at(self, position: int) -> Entry | None:
        """The header of the batch that begins at `position`; None when no whole batch can begin there."""
        if position < 0 or self.size - position <= UP_TO_MAGIC:
            return None
        _, length, _, magic = _PREFIX.unpack_from(self._bytes(position, UP_TO_MAGIC))
        if length < SMALLEST_MESSAGE or LOG_OVERHEAD + length > self.size - position or magic not in _CRC_FROM:
            return None
        return self._header(position, self._bytes(position, min(V2_HEADER, LOG_OVERHEAD + length)))

    def sound_batch_at(self, position: int) -> StoredBatch | None:
        """The batch that begins there, if all of it is there and its checksum is right."""
        try:
            batch = next(self.batches(position), None)
        except OfflineError:
            return None
        return batch if batch is not None and batch.crc_is_right else None

    def _look(self, position: int) -> tuple[int, int]:
        """Size and magic of what begins there; raises OfflineError where that is no batch."""
        _, length, _, magic = _PREFIX.unpack_from(self._bytes(position, UP_TO_MAGIC))
        if length < SMALLEST_MESSAGE:
            raise OfflineError(
                f"{self.path} has no batch at position {position}: the length there is {length}, "
                f"and the smallest message has {SMALLEST_MESSAGE} bytes."
            )
        size = LOG_OVERHEAD + length
        if size <= self.size - position and magic not in _CRC_FROM:
            raise self._no_batch(position, magic, size)
        return size, magic

    def _header(self, position: int, data: memoryview) -> Entry:
        try:
            return read_entry(data)
        except CorruptBatch:
            _, length, _, magic = _PREFIX.unpack_from(data)
            raise self._no_batch(position, magic, LOG_OVERHEAD + length) from None

    def _no_batch(self, position: int, magic: int, size: int) -> OfflineError:
        return OfflineError(
            f"{self.path} has no batch at position {position}: magic {magic} and {size} bytes are of no message "
            "format. Is it a Kafka segment?"
        )

    def _crc_of_large(self, position: int, size: int, magic: int) -> bool:
        """Whether the checksum of a batch is right, without ever having all of it in memory."""
        stored = int.from_bytes(self._bytes(position + _CRC_AT[magic], 4), "big")
        crc, total = crc32c if magic == 2 else crc32, 0
        at, end = position + _CRC_FROM[magic], position + size
        while at < end:
            part = self._bytes(at, min(CHUNK, end - at))
            total = crc(part, total)
            at += len(part)
        return total == stored

    def _bytes(self, position: int, size: int) -> memoryview:
        """`size` bytes, out of a chunk read ahead; a batch longer than a chunk is read whole."""
        start = position - self._chunk_start
        if start < 0 or start + size > len(self._chunk):
            wanted = min(max(size, self._size_of_chunk), self.size - position)
            self._chunk = read_fully(self.fd, wanted, position)
            self._chunk_start = position
            start = 0
            if len(self._chunk) < size:
                raise OfflineError(f"{self.path} became shorter while it was being read (at position {position}).")
        return memoryview(self._chunk)[start : start + size]


def read_fully(fd: int, size: int, position: int) -> bytes:
    """Up to `size` bytes, fewer only where the file ends."""
    parts = []
    while size > 0 and (part := os.pread(fd, size, position)):
        parts.append(part)
        size -= len(part)
        position += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
