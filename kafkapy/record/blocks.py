"""A segment file in blocks of bytes that begin where a batch does, for readers that take many batches at once.

    with SegmentBlocks(path) as blocks:
        for block in blocks:
            ...                       # take the whole batches of it
            blocks.used(consumed)     # how many bytes they had; the rest comes again, with more behind it

Memory: one block, or one batch where that is longer. The file is read, not mapped: an I/O error is an exception.
What is appended after the file was opened is not looked at.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from kafkapy._ext.crc32c import crc32c
from kafkapy._ext.stored_records import DamagedBatch

BLOCK = 1 << 18  # fits into the second-level cache, with what is made of it
LENGTH_END = 12  # base offset and length, which the length does not count
UP_TO_MAGIC = 17
MAX_BATCH = (1 << 31) + LENGTH_END
# A longer batch is read into memory only after its checksum was found right: most likely it is none.
DOUBTED = 1 << 24


class SegmentBlocks:
    """`position`: where the current block begins in the file; `end`: where the file ended when it was opened, or the
    end that was given."""

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
        """Closes the file; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def used(self, count: int) -> None:
        """The first `count` bytes of the current block are done with. Not called: all of them are."""
        self._used = count

    def __iter__(self) -> Iterator[memoryview]:
        """Blocks from `position` to `end`. Ends there, or before a batch that goes on behind it: then
        `position` is less than `end`. Raises OSError, and DamagedBatch (its position is that in the block) where a
        huge batch has a wrong checksum or the file became shorter.
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
            # Not even one batch was whole: it is longer than the block, or than the file.
            size = LENGTH_END + int.from_bytes(view[8:LENGTH_END], "big", signed=True) if wanted >= UP_TO_MAGIC else 0
            if size <= wanted or size > self.end - self.position:
                return
            if size > DOUBTED:
                self._check(view, size)
            if size > len(self._memory):
                view.release()
                self._memory = bytearray(size)

    def _read(self, view: memoryview, position: int) -> None:
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], position + done)
            if count == 0:
                raise DamagedBatch(0, "is not all there any more: the file became shorter while it was read")
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
