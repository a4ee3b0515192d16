"""Reading what a reply needs and the page cache does not have, on the disk's own threads.

A network thread that called sendfile for it would stop for 0.4 to 3 ms, or for as long as the disk is slow, and all its
connections with it. What several connections wait for is read once.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkapy._ext import residency
from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.read_pools import ReadPools

STEP = 1 << 20  # what is read at once
NOBODY = -1  # it was not read, since nobody waited for it any more

Done = Callable[[int, "BaseException | None"], None]


class Load:
    """A part of a file that is being read. Everybody in `waiting` is told; with nobody in it it is not begun."""

    __slots__ = ("end", "handle", "start", "waiting")

    def __init__(self, handle: FileHandle, start: int, end: int) -> None:
        self.handle = handle
        self.start = start
        self.end = end
        self.waiting: list[Done] = []

    def covers(self, handle: FileHandle, position: int) -> bool:
        return self.handle is handle and self.start <= position < self.end

    def read(self) -> int:
        """On a thread that may wait. Keeps the handle, and with it the descriptor, while the disk is read."""
        return residency.load(self.handle.fd, self.start, self.end - self.start) if self.waiting else NOBODY


class ColdReads:
    """Of one processor, on whose thread everything happens but the reading itself.

    `window` bounds how far one reader is read ahead of, `window_of_all` the sum over all readers: each has its share.
    """

    def __init__(
        self, pools: ReadPools, post: Callable[..., None], window: int = 2 * STEP, window_of_all: int = 64 * STEP
    ) -> None:
        """`post(fn, *args)` has `fn` called on the processor's thread."""
        self._pools = pools
        self._post = post
        self._window = window
        self._window_of_all = window_of_all
        self._loading: list[Load] = []
        self.readers = 0  # that are read ahead of
        self.count = 0  # replies that had to wait for the disk
        self.ahead = 0  # reads that no reply waited for when they began

    @property
    def window(self) -> int:
        """How many bytes a reader may be read ahead of now."""
        share = min(self._window, self._window_of_all // max(1, self.readers))
        return share if share >= STEP else 0

    def load(self, handle: FileHandle, start: int, end: int, done: Done) -> Load:
        """Reads the range, or waits for one that covers its beginning and is being read.

        `done(n, None)`: the bytes from `start` on up to byte n of the file are in memory; or `done(start, error)`.
        `forget` takes the wish back.
        """
        for load in self._loading:
            if load.covers(handle, start):
                load.waiting.append(done)
                return load
        load = Load(handle, start, end)
        load.waiting.append(done)
        self._submit(load)
        self._loading.append(load)
        return load

    @staticmethod
    def forget(load: Load, done: Done) -> None:
        if done in load.waiting:
            load.waiting.remove(done)

    def _submit(self, load: Load) -> None:
        pool = self._pools.of_file(load.handle.fd)
        pool.submit(load.read, done=lambda count, error: self._post(self._loaded, load, count, error))

    def _loaded(self, load: Load, count: int | None, error: BaseException | None) -> None:
        if count == NOBODY and load.waiting:  # somebody came when it had just been given up
            self._submit(load)
            return
        self._loading.remove(load)
        while load.waiting:  # one may take back another's wish
            load.waiting.pop(0)(load.start + (count or 0), error)
