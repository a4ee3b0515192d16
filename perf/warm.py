"""Fills free memory with page cache, so that no measurement pays for the first touch of a page.

A virtual machine that gives free pages back to its host takes 2 to 3 s of processor time per GiB when they
are touched again, charged to whoever writes: more than the broker itself needs. Reading a file fills the page
cache, and pages taken from the cache cost next to nothing. The file is sparse: it takes no disk.

Pages go back to the host within a second or two. So what files leave free when they are deleted is filled
at once, file by file: it costs a tenth of what it does a second later.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from perf.machine import memory_info

CHUNK = 8 << 20
WORTH = 256 << 20  # less free memory than this is not worth a top-up
SHARE = 0.8  # of all memory is to be in use; at 0.95 the kernel at times frees gigabytes of it by itself


class Warmth:
    """Keeps at most `cold` bytes of memory free; `top_up` before each measurement, `close` at the end."""

    def __init__(self, directory: Path, share: float = SHARE, limit: int | None = None) -> None:
        """`share` of all memory is to be in use; `limit` bounds what is read in all (--quick)."""
        total = memory_info()["MemTotal"]
        self._cold = int(total * (1 - share))
        self._left = limit
        self._path = directory / "warm-memory"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._end = 0
        self._buffer = bytearray(CHUNK)

    def top_up(self) -> int:
        """Reads a part of the scratch file that was never read, as long as the free memory; returns the bytes read."""
        missing = memory_info()["MemFree"] - self._cold
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

    def delete(self, directory: Path) -> None:
        """Deletes it with all that is in it; the memory that its files had is not left free."""
        for path in directory.rglob("*"):
            if path.is_file() and path.stat().st_size >= WORTH // 4:
                path.unlink()
                self.top_up()
        shutil.rmtree(directory)
        self.top_up()

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink(missing_ok=True)
