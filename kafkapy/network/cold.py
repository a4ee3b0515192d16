"""Reading what a fetch needs and the page cache does not have, on the disk pool.

A network thread that called sendfile for it would stop for 0.4 to 3 ms and all its connections with it. The pool
reads it in steps; the kernel's read-ahead works for a reader that goes through a file, so that most steps of such
a reader are there already when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkapy._ext import residency
from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.disk_pool import DiskPool

STEP = 1 << 20  # what a connection waits for at once


class ColdReads:
    """Of one processor: `fetch` brings a part of a file into the page cache and calls back on a pool thread."""

    def __init__(self, pool: DiskPool) -> None:
        self._pool = pool
        self.count = 0

    def fetch(self, handle: FileHandle, position: int, length: int, done: Callable[[int], None]) -> None:
        """Reads the first STEP of the range; `done(n)`: so many bytes of it are in memory (0: reading failed)."""
        self.count += 1
        self._pool.submit(
            load,
            handle,
            position,
            min(length, STEP),
            done=lambda loaded, error: done(0 if error is not None else loaded),
        )


def load(handle: FileHandle, position: int, length: int) -> int:
    """Keeps the handle, and with it the descriptor, while the disk is read."""
    return residency.load(handle.fd, position, length)
