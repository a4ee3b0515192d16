"""Read-ahead for a consumer whose records are not in the page cache.

A connection becomes a cold reader when a part of a reply has to wait for the disk. From then on the broker reads, one
STEP at a time, the bytes that the connection's replies still have to send. After that it reads the bytes that the
client will fetch next, from each file that the client reads in order, as far as the window allows. The page cache is
checked for each step, so nothing is left to do where the kernel's own read-ahead is faster. A connection for which
nothing had to be read for a while stops being a cold reader, and costs nothing.

What was read into blocks, and not into the page cache, is sent from them: `bytes_at`. Such reads make the kernel read
ahead, too, and the pages that it has read ahead leave the page cache with the next read of that kind. So a reader that
has got a block continues with blocks, although the next bytes are in the page cache. It goes back to the page cache
where more bytes are in it than the kernel reads ahead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from kafkapy.network.blocks import Block
from kafkapy.network.cold import STEP, ColdReads, Done, Load
from kafkapy.network.replies import Part
from kafkapy.record.file_region import FileHandle, FileRegion

if TYPE_CHECKING:
    from kafkapy.network.sends import Outbox, Residency

MOST_PARTS = 64  # parts of a reply that read-ahead checks
MOST_FILES = 256  # files for which the position of a reader is kept
CALM_BYTES = 16 * STEP  # a reader that was sent so much without a read from disk is no cold reader any more
CALM_REPLIES = 2  # nor is a reader with so many replies without a read, if nothing follows in its files
HOT_BYTES = 16 * STEP  # more than the kernel reads ahead (8 MiB where it reads far): these bytes were used by others
_NO_FURTHER = 1 << 62
_NOTHING = memoryview(b"")


class _Track:
    """A reader's position in a file, and the position up to which read-ahead has read this file."""

    __slots__ = ("begin", "end", "handle", "loaded", "size", "uncached")

    def __init__(self, region: FileRegion, before: _Track | None) -> None:
        self.handle: FileHandle | None = region.handle  # keeps the file open; None when the reply is sent
        self.begin = region.position  # of the last region that was sent
        self.end = region.position + region.length
        self.loaded = region.position  # the page cache was checked up to this position
        self.size = 0  # of the file, if the reader reads it in order, else 0
        self.uncached: bool = before is not None and before.uncached  # whether the last read was into a block
        if before is not None and before.begin < self.begin <= before.end:
            self.loaded = max(self.loaded, before.loaded)
            self.size = os.fstat(region.handle.fd).st_size


class ReadAhead:
    """The read-ahead for one connection, on its processor's thread. `drop` must be called to end it."""

    def __init__(self, cold: ColdReads, pages: Residency) -> None:
        self._cold = cold
        self._pages = pages
        self._tracks: dict[str, _Track] = {}  # by path: a handle as the key would keep its file open
        self._current: list[_Track] = []  # the files of the last reply
        self._load: Load | None = None
        self._track: _Track | None = None  # the file that `_load` reads
        self._box: Outbox | None = None
        self._demand: tuple[Load, Callable[[int, BaseException | None], None]] | None = None
        self._blocks: list[Block] = []  # those that this connection will send from, the oldest first
        self._block_bytes = 0  # of their buffers
        self._is_quiet = False  # nothing was noted or sent since the last call of `_trim`
        cold.on_trim.add(self._trim)
        self._calm_bytes = self._calm_replies = 0

    def note(self, parts: Iterable[Part]) -> None:
        """Remember the file regions among the parts of a reply that waits to be sent on this connection.

        `resume` reads these regions ahead, and then the bytes after them, which the client will fetch next.
        """
        self._is_quiet = False
        for track in self._current:
            track.handle = None
        self._current = []
        self._calm_replies += 1
        for part in parts:
            if type(part) is FileRegion:
                path = str(part.handle.path)
                track = _Track(part, self._tracks.pop(path, None))
                self._tracks[path] = track
                self._current.append(track)
                self._calm_bytes += part.length
        for path in list(islice(self._tracks, max(0, len(self._tracks) - max(MOST_FILES, len(self._current))))):
            del self._tracks[path]

    def demand(
        self, handle: FileHandle, position: int, length: int, done: Callable[[int, BaseException | None], None]
    ) -> None:
        """Read file data that a reply waits for: the `length` bytes at `position`, but at most STEP bytes.

        Calls `done(n, None)` when n bytes from `position` on are in memory, or `done(0, error)` if the read failed.
        """
        track = self._tracks.get(str(handle.path))
        if track is not None and track.loaded > position:
            track.loaded = position  # these bytes were in the page cache, and were evicted

        def loaded(end: int, error: BaseException | None) -> None:
            if self._demand is not None:
                self._keep_demanded(self._demand[0].block, track)
                self._demand = None
            if track is not None:
                track.loaded = max(track.loaded, end)
            done(max(0, end - position), error)

        self._calm_bytes = self._calm_replies = 0
        block = self._cold.find(handle, position)
        if block is not None:  # of another reader
            self._cold.shared += 1
            self._keep_demanded(block, track)
            loaded(block.end, None)
            return
        self._demand = self._read(handle, track, position, position + min(length, STEP), loaded), loaded

    def _read(self, handle: FileHandle, track: _Track | None, start: int, end: int, done: Done) -> Load:
        """Have the bytes read, see ColdReads.load, and count if another reader has begun this read.

        A few pages that are absent among many in the page cache are read into it: others use this file, and would have
        to read the pages from the disk again and again.
        """
        behind = min(end + HOT_BYTES, handle.final)
        is_hole = (
            track is not None
            and not track.uncached
            and end < behind
            and self._pages.resident(handle.fd, end, behind - end)
        )
        load = self._cold.load(handle, start, end, done, into_cache=is_hole)
        if len(load.waiting) > 1 and load is not self._load and (self._demand is None or load is not self._demand[0]):
            self._cold.shared += 1
        return load

    def bytes_at(self, handle: FileHandle, position: int, length: int) -> memoryview | None:
        """Return the bytes of the file from `position` on, at most `length`, if they are in a block of this connection.

        Return an empty view if they must be read into a block first, and None if they must come from the page cache.
        The view is valid until the next call of a method. Earlier bytes of the file are not kept.
        """
        self._is_quiet = False
        for index, block in enumerate(self._blocks):
            if block.covers(handle, position):
                for _ in range(index):
                    if self._blocks[0].handle is not handle:
                        break
                    self._release(self._blocks[0])
                return block.view(position, length)
        track = self._tracks.get(str(handle.path))
        if track is None or not track.uncached or track.handle is not handle:
            return None
        return None if self._is_cached(track, position, position + length) else _NOTHING

    def _is_cached(self, track: _Track, begin: int, end: int) -> bool:
        """Return True if these bytes are in the page cache, and were not just read ahead by the kernel."""
        assert track.handle is not None
        if track.uncached:
            end = max(end, min(begin + HOT_BYTES, track.handle.final))
        return self._pages.resident(track.handle.fd, begin, end - begin)

    def _keep(self, block: Block | None, track: _Track | None) -> None:
        """Keep a block that was read for a file until it is sent. None stands for a read into the page cache."""
        if track is not None:
            track.uncached = block is not None
        if block is not None and block not in self._blocks:
            block.readers += 1
            self._blocks.append(block)
            self._block_bytes += block.buffer.capacity

    def _keep_demanded(self, block: Block | None, track: _Track | None) -> None:
        """Keep the block that a reply waits for. If there are too many, those that were kept first are released."""
        self._keep(block, track)
        while len(self._blocks) > 1 and self._is_full():
            self._release(self._blocks[0])

    def _is_full(self) -> bool:
        return self._block_bytes >= self._cold.window + 2 * STEP

    def _trim(self) -> None:
        """Release all blocks if nothing was sent since the last call: the client may pause for hours."""
        if self._is_quiet and self._demand is None:
            self._release_all()
        self._is_quiet = True

    def _release_all(self) -> None:
        while self._blocks:
            self._release(self._blocks[0])

    def _release(self, block: Block) -> None:
        self._blocks.remove(block)
        self._block_bytes -= block.buffer.capacity
        block.readers -= 1

    def resume(self, box: Outbox) -> bool:
        """Begin the next read, if there is something to read ahead and no read is in progress.

        Return False if nothing had to be read for a while, so that read-ahead is no longer needed; the caller then
        calls `drop`.
        """
        if self._load is not None:
            return True
        found = self._next(box)
        if found is not None:
            self._calm_bytes = self._calm_replies = 0
            track, start, end = found
            assert track.handle is not None
            self._box, self._track = box, track
            self._cold.ahead += 1
            self._load = self._read(track.handle, track, start, end, self._loaded)
            return True
        if not box.parts and self._demand is None:
            follows = any(track.end < track.size for track in self._current)
            for track in self._current:
                track.handle = None
            return self._calm_bytes < CALM_BYTES and (follows or self._calm_replies < CALM_REPLIES)
        return True

    def drop(self) -> None:
        """End the read-ahead of this connection. Reads that have not begun are skipped, and no callback is called."""
        self._cold.on_trim.remove(self._trim)
        self._release_all()
        if self._load is not None:
            self._cold.forget(self._load, self._loaded)
            self._load = None
        if self._demand is not None:
            self._cold.forget(*self._demand)
            # The callback refers to this object and to the connection. If it stayed, that would be a reference cycle,
            # which keeps the connection, its reply and the reply's files until the garbage collector runs.
            self._demand = None

    def _loaded(self, end: int, error: BaseException | None) -> None:
        load, track, box = self._load, self._track, self._box
        assert load is not None
        assert track is not None
        assert box is not None
        self._load = None
        if error is not None or end == load.start:
            # No more read-ahead in this file. A reply that needs these bytes reads them itself, and gets the error.
            track.loaded, track.size = _NO_FURTHER, 0
        else:
            self._keep(load.block, track)
            track.loaded = max(track.loaded, end)
        self.resume(box)

    def _next(self, box: Outbox) -> tuple[_Track, int, int] | None:
        """Return the next file data to read ahead, at most one STEP, as (track of the file, begin, end).

        The data of the replies and of later fetches is checked in the order in which it will be sent; the result is the
        first that is not in the page cache. None if everything within the window is in the page cache.
        """
        left = self._cold.window
        offset = box.offset
        for part in islice(box.parts, box.index, box.index + MOST_PARTS):
            if left <= 0:
                return None
            if type(part) is FileRegion:
                track = self._tracks.get(str(part.handle.path))
                if track is not None and track.handle is part.handle:
                    begin = part.position + offset
                    absent = self._absent(track, begin, min(begin + left, part.position + part.length))
                    if absent is not None:
                        return absent
                left -= part.length - offset
            offset = 0
        following = [track for track in self._current if track.handle is not None and track.size > track.end]
        share = max(STEP, left // max(1, len(following)))
        for track in following[: max(0, left // share)]:
            absent = self._absent(track, track.end, min(track.end + share, track.size))
            if absent is not None:
                return absent
        return None

    def _absent(self, track: _Track, begin: int, end: int) -> tuple[_Track, int, int] | None:
        assert track.handle is not None
        track.loaded = max(begin, track.loaded)
        while track.loaded < end:
            block = self._cold.find(track.handle, track.loaded)
            if block is not None:
                if self._is_full():
                    return None
                self._calm_bytes = self._calm_replies = 0
                self._cold.shared += 1
                self._keep(block, track)
                track.loaded = block.end
                continue
            step = min(track.loaded + STEP, max(end, track.size))
            if track.loaded < track.handle.final:  # what is behind is read separately, see ColdReads.load
                step = min(step, track.handle.final)
            if not self._is_cached(track, track.loaded, step):
                return track, track.loaded, step
            track.uncached = False
            track.loaded = step
        return None
