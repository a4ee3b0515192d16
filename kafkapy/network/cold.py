"""Reading ahead what a fetch needs and the page cache does not have, on the disk pool.

A network thread that called sendfile for it would stop for 0.4 to 3 ms and all its connections with it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from weakref import ref

from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.disk_pool import DiskPool

STEP = 1 << 20  # what a connection waits for at once
AHEAD = 8 << 20  # what the kernel is asked to read on for a reader that goes through the file
_PROBE = 128 << 10
_REMEMBERED = 256


class ColdReads:
    """Of one processor: `fetch` reads a part of a file into the page cache and calls back on a pool thread."""

    def __init__(self, pool: DiskPool) -> None:
        self._pool = pool
        # Where the last cold read of a file ended, by the identity of its handle: a reader that goes on there is
        # reading the file through.
        self._ends: OrderedDict[int, tuple[ref[FileHandle], int]] = OrderedDict()
        self.count = 0

    def fetch(self, handle: FileHandle, position: int, length: int, done: Callable[[int], None]) -> None:
        """Reads at least the first STEP of the range; `done(n)`: so many bytes of it are in memory (0: it failed)."""
        self.count += 1
        step = min(length, STEP)
        ahead = min(max(length, step), AHEAD)
        known = self._ends.pop(id(handle), None)
        if known is not None and known[0]() is handle and 0 <= position - known[1] <= STEP:
            ahead = AHEAD
        self._ends[id(handle)] = (ref(handle), position + step)
        if len(self._ends) > _REMEMBERED:
            self._ends.popitem(last=False)
        self._pool.submit(
            read_ahead, handle, position, step, ahead, done=lambda _, error: done(0 if error is not None else step)
        )


def read_ahead(handle: FileHandle, position: int, step: int, ahead: int) -> None:
    """Starts reading `ahead` bytes and returns when the first `step` of them are in the page cache."""
    os.posix_fadvise(handle.fd, position, ahead, os.POSIX_FADV_WILLNEED)
    # Reading a byte waits until its page is there. They come mostly in order, in requests of this size or larger.
    for at in range(position, position + step - 1, _PROBE):
        os.pread(handle.fd, 1, at)
    os.pread(handle.fd, 1, position + step - 1)
