"""Fills free memory with page cache, so that no measurement pays for the first touch of a page.

If a virtual machine has returned free pages to its host, touching them again takes 2 to 3 s of CPU time per GiB, which
the writing process pays: more than the broker itself needs. Reading a file fills the page cache, and pages taken from
the cache cost almost nothing. The file is sparse, so it takes no disk space.

Pages return to the host within a second or two. So memory that becomes free when a file is deleted is filled
immediately, file by file, which costs a tenth of what it costs a second later.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from perf.machine import memory_info

CHUNK = 8 << 20
WORTH = 256 << 20  # less free memory than this is not worth filling
SHARE = 0.8  # of all memory should be in use; at 0.95 the kernel sometimes frees gigabytes of it


class Warmth:
    """Keeps at most `cold` bytes of memory free; `top_up` before each measurement, `close` at the end."""

    def __init__(self, directory: Path, share: float = SHARE, limit: int | None = None) -> None:
        """`share`: the part of all memory that should be in use. `limit`: most bytes to read in total (--quick)."""
        total = memory_info()["MemTotal"]
        self._cold = int(total * (1 - share))
        self._left = limit
        self._path = directory / "warm-memory"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._end = 0
        self._buffer = bytearray(CHUNK)

    def top_up(self, most_free: int | None = None) -> int:
        """Fill the free memory, except `most_free` bytes, by reading a new part of the scratch file; return the bytes
        read."""
        missing = memory_info()["MemFree"] - (self._cold if most_free is None else most_free)
        if self._left is not None:
            missing = min(missing, self._left)
        if missing < WORTH:
            return 0
        start, self._end = self._end, self._end + missing
        os.ftruncate(self._fd, self._end)
        for position in range(start, self._end, CHUNK):
            os.preadv(self._fd, [self._buffer], position)
        if self._left is not None:
            self._left -= missing
        return missing

    def free(self, size: int) -> None:
        """Free `size` more bytes of memory that were touched before, if the scratch file has that many."""
        wanted = memory_info()["MemFree"] + size
        for position in reversed(range(0, self._end, WORTH)):
            if memory_info()["MemFree"] >= wanted:
                return
            os.posix_fadvise(self._fd, position, WORTH, os.POSIX_FADV_DONTNEED)

    def delete(self, directory: Path) -> None:
        """Delete a directory with its contents, and fill the memory that becomes free."""
        for path in directory.rglob("*"):
            if path.is_file() and path.stat().st_size >= WORTH // 4:
                path.unlink()
                self.top_up()
        shutil.rmtree(directory)
        self.top_up()

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink(missing_ok=True)
