"""Reads a segment file in blocks that begin at a batch, for readers that process many batches at once.

    with SegmentBlocks(path) as blocks:
        for block in blocks:
            ...                       # process the complete batches of the block
            blocks.used(consumed)     # their number of bytes; the next block begins with the rest

Reading uses the memory of one block, or of one batch if the batch is larger. The file is read, not mapped, so that I/O
errors are exceptions. Data appended after the file was opened is not read.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.stored_records import DamagedBatch

BLOCK = 1 << 18  # fits into the second-level cache together with the results
LENGTH_END = 12  # base offset and length; the length does not include these
UP_TO_MAGIC = 17
# A larger batch is read into memory only after its checksum was verified: most likely its length is wrong.
VERIFY_FIRST = 1 << 24


class SegmentBlocks:
    """Iterates over the blocks of a segment file. `position` is the file position of the current block; `end` is where
    reading stops: the size of the file when it was opened, or the argument `end` if that is smaller."""

    def __init__(
        self, path: str | os.PathLike[str], position: int = 0, block: int = BLOCK, *, end: int | None = None
    ) -> None:
        self.path = Path(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.position = position
        size = os.fstat(self._fd).st_size
        self.end = size if end is None else min(end, size)
        self._memory = bytearray(block)
        self._used = -1

    def __enter__(self) -> SegmentBlocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def used(self, count: int) -> None:
        """Set how many bytes of the current block were processed; the next block begins after them. Without this call,
        the whole block counts as processed."""
        self._used = count

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the blocks from `position` to `end`. Stop early at a batch that extends beyond `end`; `position` is
        then less than `end`.

        Raises OSError, and DamagedBatch (with its position in the block) if a very large batch has a wrong checksum or
        the file became shorter.
        """
        size = len(self._memory)
        while self.position < self.end:
            wanted = min(size, self.end - self.position)
            view = memoryview(self._memory)[:wanted]
            self._read(view, self.position)
            self._used = wanted
            yield view
            self.position += self._used
            size = len(self._memory)
            if self._used:
                continue
            # The block has no complete batch: the batch is larger than the block, or extends beyond the file.
            size = LENGTH_END + int.from_bytes(view[8:LENGTH_END], "big", signed=True) if wanted >= UP_TO_MAGIC else 0
            if size <= wanted or size > self.end - self.position:
                return
            if size > VERIFY_FIRST:
                self._check(view, size)
            if size > len(self._memory):
                view.release()
                self._memory = bytearray(size)

    def _read(self, view: memoryview, position: int) -> None:
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], position + done)
            if count == 0:
                raise DamagedBatch(0, "is incomplete: the file became shorter while it was read")
            done += count

    def _check(self, view: memoryview, size: int) -> None:
        magic = view[UP_TO_MAGIC - 1]
        add: Callable[[memoryview, int], int]
        add, covers, stored_at = (crc32c, 21, 17) if magic == 2 else (zlib.crc32, 16, 12)
        stored = int.from_bytes(view[stored_at : stored_at + 4], "big")
        crc, done = 0, covers
        while done < size:
            piece = view[: min(len(view), size - done)]
            self._read(piece, self.position + done)
            crc = add(piece, crc)
            done += len(piece)
        if crc != stored:
            raise DamagedBatch(0, f"({size} bytes by its length) has a wrong CRC")
