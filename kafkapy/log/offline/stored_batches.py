"""Read the batches of .log files without a broker: every message format, and any mixture of formats.

Files are opened read-only, and sizes in them are not trusted. At most one chunk or one batch is kept in memory, so a
segment of any length can be read. Source: Kafka's `FileLogInputStream`.
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
from kafkapy.record.batch import payload_of, records_of
from kafkapy.record.legacy import Entry, iter_entries, read_entry
from kafkapy.record.records import Record

LOG_OVERHEAD = 12  # the base offset and length fields, which the length does not include
UP_TO_MAGIC = 17  # bytes needed to know the format of a batch
SMALLEST_MESSAGE = 14  # Kafka's LegacyRecord.RECORD_OVERHEAD_V0
V2_HEADER = 61
CHUNK = 1 << 20

# Real batches above this size are rare, but such lengths are common in a damaged file. So the checksum is first
# computed from the file in chunks, before memory for the whole batch is allocated.
LARGE = 32 << 20

_PREFIX = Struct(">qiib")
# By magic: the position of the checksum (4 bytes), and of the bytes that it covers, which follow it.
_CRC_AT = {0: 12, 1: 12, 2: 17}
_CRC_FROM = {magic: at + 4 for magic, at in _CRC_AT.items()}


class StoredBatch(NamedTuple):
    """A batch of format 2, or a message or compressed message of format 0 or 1, with its position in the file and its
    bytes.

    `data` is valid until the next batch is requested. The attributes of `header` are the same for all formats.
    """

    position: int
    header: Entry
    data: memoryview

    @property
    def crc_is_right(self) -> bool:
        crc = crc32c if self.header.magic == 2 else crc32
        return crc(self.data[_CRC_FROM[self.header.magic] :]) == self.header.crc

    @property
    def end(self) -> int:
        """The position in the file after this batch."""
        return self.position + self.header.size

    @property
    def place(self) -> str:
        """A description of the batch with its position and offset, for messages."""
        head = self.header
        if isinstance(head, BatchHeader):
            return f"batch at position {self.position} (base offset {head.base_offset})"
        return f"message at position {self.position} (offset {head.offset})"

    def records(self) -> list[Record]:
        """Return the records of the batch with absolute offsets and timestamps, as a consumer gets them.

        Raises ValueError if they cannot be decompressed or parsed.
        """
        return records_of(self.data, self.header)

    def checksums(self) -> list[tuple[bool, int]]:
        """Return (is the checksum correct, checksum) for each of `records`, only in formats 0 and 1.

        In these formats every message, also inside a compressed message, has a checksum. Raises ValueError if the batch
        cannot be decompressed or parsed.
        """
        if self.header.codec == 0:
            return [(self.crc_is_right, self.header.crc)]
        inner = memoryview(payload_of(self.data, self.header))
        return [
            (crc32(inner[one.position + 16 : one.position + one.size]) == one.crc, one.crc)
            for one in iter_entries(inner)
        ]


def is_offset(stem: str) -> bool:
    """Return True if `stem`, a file name without its suffix, is the base offset of a segment."""
    return stem.isascii() and stem.isdigit() and len(stem) <= 20 and int(stem) <= MAX_OFFSET


def base_offset_of(path: Path) -> int:
    """Return the base offset that a segment file has in its name. Raises OfflineError for any other name."""
    stem = path.name.partition(".")[0]
    if not is_offset(stem):
        raise OfflineError(
            f"{path} is not a segment file: its name does not begin with an offset (as in 00000000000000000042.log)."
        )
    return int(stem)


class LogReader:
    """Reads the batches of one .log file, up to the size that the file had when it was opened or last refreshed."""

    def __init__(self, path: Path, limit: int | None = None, *, chunk: int = CHUNK) -> None:
        """`limit`: how many bytes of the file to read, by default all; `chunk`: the number of bytes per read call.
        Raises OSError.
        """
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
        """Close the file."""
        os.close(self.fd)

    def refresh(self) -> int:
        """Set `size` to the present size of the file, drop the chunk in memory, and return the size."""
        self.size = os.fstat(self.fd).st_size
        self._chunk = b""
        return self.size

    @property
    def has_grown(self) -> bool:
        """Return True if the file's size differs from `size`, so an incomplete batch at the end may be complete
        by now.
        """
        return os.fstat(self.fd).st_size != self.size

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        """Yield the whole batches from `position` on. Ends before an incomplete batch at the end, as Kafka's readers
        do.

        Raises OfflineError if the bytes at the position of the next batch cannot be a batch.
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
        """Return the header of the batch at `position`, None if no whole batch can begin there.

        Raises OfflineError if the bytes are in no message format.
        """
        if position < 0 or self.size - position <= UP_TO_MAGIC:
            return None
        _, length, _, magic = _PREFIX.unpack_from(self._bytes(position, UP_TO_MAGIC))
        if length < SMALLEST_MESSAGE or LOG_OVERHEAD + length > self.size - position or magic not in _CRC_FROM:
            return None
        return self._header(position, self._bytes(position, min(V2_HEADER, LOG_OVERHEAD + length)))

    def valid_batch_at(self, position: int) -> StoredBatch | None:
        """Return the batch at `position` if it is complete and its checksum is correct, else None."""
        try:
            batch = next(self.batches(position), None)
        except OfflineError:
            return None
        return batch if batch is not None and batch.crc_is_right else None

    def _look(self, position: int) -> tuple[int, int]:
        """Return (size in bytes, magic) of the batch at `position`. Raises OfflineError if no batch can begin there."""
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
        """Return True if the checksum of the batch at `position` is correct. Reads the batch in chunks, to save
        memory.
        """
        stored = int.from_bytes(self._bytes(position + _CRC_AT[magic], 4), "big")
        crc, total = crc32c if magic == 2 else crc32, 0
        at, end = position + _CRC_FROM[magic], position + size
        while at < end:
            part = self._bytes(at, min(CHUNK, end - at))
            total = crc(part, total)
            at += len(part)
        return total == stored

    def _bytes(self, position: int, size: int) -> memoryview:
        """Return the `size` bytes at `position`. Reads at least one chunk ahead.

        Raises OfflineError if the file has become shorter.
        """
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
    """Return `size` bytes of the file from `position` on; fewer only if the file ends before."""
    parts = []
    while size > 0 and (part := os.pread(fd, size, position)):
        parts.append(part)
        size -= len(part)
        position += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
