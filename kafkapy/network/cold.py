"""Reading file data that a reply needs, and that is not in the page cache, on a thread pool of the disk.

If a network thread called sendfile for such data, the thread and all its connections would wait for 0.4 to 3 ms, or
longer on a slow disk. Data that several connections wait for is read once. It is read into blocks (see
`kafkapy.network.blocks`), or into the page cache where that is not possible.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkapy._ext import residency
from kafkapy.network import blocks
from kafkapy.network.blocks import Block, Blocks
from kafkapy.network.buffers import Buffer
from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.read_pools import ReadPools

STEP = 1 << 20  # bytes that one read covers
NOBODY = -1  # the result of a load that was not read, because no callback was waiting for it any more

Done = Callable[[int, "BaseException | None"], None]


class Load:
    """A byte range of a file to read. `waiting` holds the callbacks to call afterwards.

    It is read into `buffer` if there is one: then `block` has the bytes when the callbacks are called. Otherwise, or if
    the file's disk does not support that, it is read into the page cache, and `block` is None.

    If `waiting` is empty when a pool thread calls `read`, nothing is read.
    """

    __slots__ = ("block", "buffer", "end", "handle", "is_cached", "start", "waiting")

    def __init__(self, handle: FileHandle, start: int, end: int, buffer: Buffer | None = None) -> None:
        self.handle = handle
        self.start = start
        self.end = end
        self.buffer = buffer
        self.is_cached = buffer is None  # whether the page cache has the bytes
        self.block: Block | None = None
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
        if self.buffer is not None:
            count = blocks.read(self.handle, self.start, self.end, self.buffer)
            if count is not None:
                return count
            self.is_cached = True
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
        memory: Blocks | None = None,
    ) -> None:
        """Begin with no read in progress. `post(fn, *args)` must have `fn(*args)` called on the processor's thread.
        Without `memory` everything is read into the page cache."""
        self._pools = pools
        self._post = post
        self._window = window
        self._window_of_all = window_of_all
        self._memory = memory
        self._loading: list[Load] = []
        self.on_trim: set[Callable[[], object]] = set()  # what `trim` calls, one for each reader
        self.count = 0  # how many times a reply had to wait for the disk
        self.ahead = 0  # reads that no reply was waiting for when they began
        self.shared = 0  # reads that a reader did not need, because of a read for another
        self.uncached = 0  # reads into blocks
        self.uncached_bytes = 0
        self.cached_bytes = 0  # read into the page cache

    @property
    def window(self) -> int:
        """Return the number of bytes that may be read ahead for one reader now.

        The number is 0 if a reader's share is less than STEP bytes.
        """
        share = min(self._window, self._window_of_all // max(1, len(self.on_trim)))
        return share if share >= STEP else 0

    def load(self, handle: FileHandle, start: int, end: int, done: Done, *, into_cache: bool = False) -> Load:
        """Have the bytes `start` to `end` of the file read, at most STEP, then `done` called. Return the Load.

        Only bytes that are final (see FileHandle) are read into a block: the page cache is always right. With
        `into_cache` none are.

        If a load in progress covers `start`, no other read begins, and `done` is called after that load. A call
        `done(n, None)` means that the bytes from `start` up to, but without, file position n are in memory: in the
        Load's `block`, otherwise in the page cache. A call `done(position, error)` means that the read, which began at
        `position`, failed. `forget` cancels the callback.
        """
        for load in self._loading:
            if load.covers(handle, start):
                load.waiting.append(done)
                return load
        buffer = None
        if self._memory is not None and not into_cache and end <= handle.final:
            buffer = self._memory.take(handle, end - start)
        load = Load(handle, start, end, buffer)
        load.waiting.append(done)
        try:
            self._submit(load)
        except BaseException:
            if buffer is not None and self._memory is not None:
                self._memory.give_back(buffer)
            raise
        self._loading.append(load)
        return load

    def trim(self) -> None:
        """Free the memory that was not used since the last call, or the one before. Called every few seconds."""
        for trim in list(self.on_trim):
            trim()
        if self._memory is not None:
            self._memory.trim()

    def find(self, handle: FileHandle, position: int) -> Block | None:
        """Return the block in memory that has the byte of the file at `position`, or None."""
        return None if self._memory is None else self._memory.find(handle, position)

    @staticmethod
    def forget(load: Load, done: Done) -> None:
        if done in load.waiting:
            load.waiting.remove(done)

    def _submit(self, load: Load) -> None:
        pool = self._pools.of_file(load.handle.fd)
        pool.submit(load.read, done=lambda count, error: self._post(self._loaded, load, count, error))

    def _loaded(self, load: Load, count: int | None, error: BaseException | None) -> None:
        # The pool thread found no callback and read nothing. Before this message was processed, `load` added one,
        # because the load was still in the list. That callback needs the read.
        if count == NOBODY and load.waiting:
            self._submit(load)
            return
        self._loading.remove(load)
        self._take_bytes(load, count or 0)
        if load.block is not None:
            load.block.readers += 1  # until all callbacks had the opportunity to keep it
        while load.waiting:  # not a for loop: a callback may remove another one by `forget`
            load.waiting.pop(0)(load.start + (count or 0), error)
        if load.block is not None:
            load.block.readers -= 1

    def _take_bytes(self, load: Load, count: int) -> None:
        """Make a block of the bytes that were read, or give the buffer back."""
        if load.is_cached:
            self.cached_bytes += max(0, count)
        if load.buffer is None:
            return
        assert self._memory is not None
        if load.is_cached:
            self._memory.note_unsupported(load.handle)
        if load.is_cached or count <= 0:
            self._memory.give_back(load.buffer)
        else:
            self.uncached += 1
            self.uncached_bytes += count
            load.block = self._memory.put(load.handle, load.start, load.start + count, load.buffer)
