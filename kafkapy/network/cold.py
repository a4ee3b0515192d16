"""Reads file data that a reply needs, and that is not in the page cache, on a thread pool of the disk.

If a network thread called sendfile for such data, the thread and all its connections would wait for 0.4 to 3 ms, or
longer on a slow disk. Data that several connections wait for is read once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkapy._ext import residency
from kafkapy.network.drop_behind import DropBehind
from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.read_pools import ReadPools

log = logging.getLogger(__name__)

STEP = 1 << 20  # bytes that one read covers
NOBODY = -1  # the result of a load that was not read, because no callback was waiting any more

Done = Callable[[int, "BaseException | None"], None]


class Load:
    """A byte range of a file to read into the page cache. `waiting` holds the callbacks to call afterwards. `stays`:
    the bytes stay in the page cache after the readers have passed them.

    If `waiting` is empty when a pool thread calls `read`, nothing is read.
    """

    __slots__ = ("end", "handle", "start", "stays", "waiting")

    def __init__(self, handle: FileHandle, start: int, end: int, stays: bool) -> None:
        self.handle = handle
        self.start = start
        self.end = end
        self.stays = stays
        self.waiting: list[Done] = []

    def covers(self, handle: FileHandle, position: int) -> bool:
        return self.handle is handle and self.start <= position < self.end

    def read(self) -> int:
        """Read the range and return the number of bytes read. May wait for the disk.

        If no callback is waiting any more, read nothing and return NOBODY (-1). This object refers to the file handle,
        so the descriptor stays open during the read.
        """
        if not self.waiting:
            return NOBODY
        return residency.load(self.handle.fd, self.start, self.end - self.start)


class ColdReads:
    """The reads from disk in progress for one processor. All methods run on the processor's thread.

    A reader is a connection with read-ahead. `window` is the most bytes that are read ahead for one reader.
    `window_of_all` is the most bytes for all readers of the processor together; each reader gets an equal share.
    """

    def __init__(
        self,
        pools: ReadPools,
        post: Callable[..., None],
        window: int = 2 * STEP,
        window_of_all: int = 64 * STEP,
        behind: DropBehind | None = None,
    ) -> None:
        """Begin with no read in progress. `post(fn, *args)` must have `fn(*args)` called on the processor's thread.
        Without `behind` everything that was read stays in the page cache."""
        self._pools = pools
        self._post = post
        self._window = window
        self._window_of_all = window_of_all
        self.behind = behind
        self._loading: list[Load] = []
        self.on_trim: set[Callable[[], object]] = set()  # what `trim` calls, one for each reader
        self.count = 0  # how many times a reply had to wait for the disk
        self.ahead = 0  # reads that no reply was waiting for when they began
        self.shared = 0  # reads that a reader did not need, because another reader's read covered its bytes
        self.bytes = 0  # read from the disk

    @property
    def window(self) -> int:
        """Return the number of bytes that may be read ahead for one reader now.

        The number is 0 if a reader's share is less than STEP bytes.
        """
        share = min(self._window, self._window_of_all // max(1, len(self.on_trim)))
        return share if share >= STEP else 0

    def load(self, handle: FileHandle, start: int, end: int, done: Done, *, stays: bool = False) -> Load:
        """Have the bytes `start` to `end` of the file read, at most STEP, then `done` called. Return the Load.

        If a load in progress covers `start`, no other read begins, and `done` is called after that load. A call
        `done(n, None)` means that the bytes from `start` up to, but without, file position n are in the page cache. A
        call `done(position, error)` means that the read, which began at `position`, failed. `forget` cancels the
        callback. With `stays`, the bytes stay in the page cache after the readers have passed them.
        """
        for load in self._loading:
            if load.covers(handle, start):
                load.waiting.append(done)
                return load
        load = Load(handle, start, end, stays or self.behind is None)
        load.waiting.append(done)
        self._submit(load)
        self._loading.append(load)
        return load

    def trim(self) -> None:
        """Call the functions in `on_trim`. Each lets the page cache drop what was read for its reader if nothing was
        sent to the reader since the last call. Called every few seconds."""
        for trim in list(self.on_trim):
            trim()

    @staticmethod
    def forget(load: Load, done: Done) -> None:
        if done in load.waiting:
            load.waiting.remove(done)

    def _submit(self, load: Load) -> None:
        pool = self._pools.of_file(load.handle.fd)
        pool.submit(load.read, done=lambda count, error: self._post(self._loaded, load, count, error))

    def _loaded(self, load: Load, count: int | None, error: BaseException | None) -> None:
        # A race: the pool thread found no callback and read nothing. Then `load` added a callback, because the load was
        # still in the list. Then this message is processed: that callback needs the read.
        if count == NOBODY and load.waiting:
            try:
                self._submit(load)
            except Exception as failure:  # such as NoThread
                self._loaded(load, None, failure)
            return
        self._loading.remove(load)
        if count is not None and count > 0:
            self.bytes += count
            if self.behind is not None and not load.stays:
                self.behind.note_read(str(load.handle.path), load.start, load.start + count)
        while load.waiting:  # not a for loop: a callback may remove another one by `forget`
            done = load.waiting.pop(0)
            try:
                done(load.start + (count or 0), error)
            except Exception:  # other connections wait for the callbacks that follow
                log.exception("a callback failed after %s was read from disk", load.handle.path)
