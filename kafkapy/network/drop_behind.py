"""Removing from the page cache what was read from disk for consumers that are far behind, once they have passed it.

Such a consumer reads each byte once. If its bytes stayed in the page cache, they would take the place of what others
need, and the kernel would have to make room for more of them all the time, which delays writers. With each piece
removed, the kernel uses the same pages for the next one: measured, that is faster than reads that leave the pages
(3.4 GB/s for 0.04 s of CPU per GiB, against 0.6 to 1.9 GB/s and 0.3 to 1.9 s), and than reads with RWF_DONTCACHE (2.0
GB/s, 0.16 s), and the bytes still go to the socket by sendfile.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from itertools import pairwise

from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread

# The kernel removes large pages only as a whole. They are aligned to their size, of at most 2 MiB where pages have 4
# KiB, so pieces end at multiples of it.
PIECE = 2 << 20
LEAST = 4 * PIECE  # is kept for a reader close behind another one, however many readers there are


class _Range:
    """The bytes `start` up to `end` of a file were read for readers, and not removed yet. `tried`: where the last
    removed piece began. Some of its pages may still be there, because they were just being sent."""

    __slots__ = ("end", "start", "tried")

    def __init__(self, start: int, end: int, tried: int) -> None:
        self.start = start
        self.end = end
        self.tried = tried

    def pass_by(self, near: Sequence[int], reach: int, own: int) -> tuple[list[_Range], list[_Range]]:
        """Return what no reader needs any more, and what is left, which may be two ranges. `near`: the positions of the
        readers in the range or within `reach` before it, in order."""
        # Readers further back may have read ahead up to here.
        again = min(self.start, max(self.tried, self.start - reach + own))
        if not near:
            return [_Range(self.start, self.end, again)], []
        passed, left = [], [self]
        needed = near[0] // PIECE * PIECE
        if needed - self.start >= PIECE:
            passed.append(_Range(self.start, needed, again))
            self.start, self.tried = needed, self.start
        for reader, front in pairwise(near):
            if front - reader > reach:
                begin, end = max(self.start, reader + own), front // PIECE * PIECE
                if end - begin >= PIECE:
                    passed.append(_Range(begin, end, begin))
                    if end < self.end:
                        left.append(_Range(end, self.end, begin))
                    self.end = begin
                    break  # the next call looks at the rest
        return passed, left


class _File:
    __slots__ = ("ranges", "readers")

    def __init__(self) -> None:
        self.ranges: list[_Range] = []  # in order, without bytes in common
        self.readers: dict[Hashable, int] = {}  # the first byte that a reader still needs

    def add(self, start: int, end: int) -> None:
        tried, rest = start, []
        for each in self.ranges:
            if start <= each.end and each.start <= end:
                if each.start <= start:
                    tried = each.tried
                start, end = min(start, each.start), max(end, each.end)
            else:
                rest.append(each)
        self.ranges = sorted([*rest, _Range(start, end, min(tried, start))], key=lambda each: each.start)

    def pass_by(self, reach: int, own: int) -> list[_Range]:
        """Forget the bytes that no reader needs any more, and return them."""
        positions = sorted(self.readers.values())
        passed, left = [], []
        for each in self.ranges:
            near = positions[bisect_left(positions, each.start - reach) : bisect_right(positions, each.end)]
            gone, rest = each.pass_by(near, reach, own)
            passed += gone
            left += rest
        self.ranges = left
        return passed


class DropBehind:
    """What was read for the readers of all processors. The methods may be called from any thread.

    A reader is any object that can be a key. What a reader has passed is kept for the next one behind it, if the
    distance is at most an equal share of `limit` bytes for each reader of each file; never less than LEAST, also if
    that is more than `limit` in all. What a reader has in front of its position, as far as `own` bytes, is never
    removed: it may have been read just now. Files are known by their paths: an open handle would keep a deleted file
    on the disk.
    """

    def __init__(self, limit: int, own: int) -> None:
        self._limit = limit
        self._own = own
        self._pool = DiskPool(1, "drop-behind")  # not that of a disk: what a reply waits for is read there
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._readers = 0  # of all files
        self.dropped_bytes = 0  # which the kernel was asked to remove, or is about to be

    def __len__(self) -> int:
        """Return the number of files with readers."""
        return len(self._files)

    def note_read(self, path: str, start: int, end: int) -> None:
        """Note that these bytes are in the page cache because of a reader of the file."""
        with self._lock:
            file = self._files.get(path)
            if file is not None:  # else the reader has left the file
                file.add(start, end)

    def read_until(self, path: str, position: int) -> int:
        """Return the end of the bytes from `position` on that were read for readers; `position` if there are none."""
        with self._lock:
            file = self._files.get(path)
            for each in file.ranges if file is not None else ():
                if each.start <= position < each.end:
                    return each.end
        return position

    def move(self, reader: Hashable, path: str, position: int, since: int | None = None) -> None:
        """Note that the reader does not need the bytes before `position` any more, and remove what no reader needs.

        The bytes from `since` on are noted as read for readers, too.
        """
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = _File()
            self._readers += reader not in file.readers
            file.readers[reader] = position
            if since is not None and since < position:
                file.add(since, position)
            passed = self._passed(file)
        self._remove(path, passed)

    def leave(self, reader: Hashable, path: str) -> None:
        """Note that the reader needs nothing of the file any more, and remove what no reader needs."""
        with self._lock:
            file = self._files.get(path)
            if file is None or file.readers.pop(reader, None) is None:
                return
            self._readers -= 1
            passed = self._passed(file)
            if not file.readers:
                del self._files[path]
        self._remove(path, passed)

    def stop(self) -> None:
        """Remove what was passed before, and remove nothing any more."""
        self._pool.stop()

    def _passed(self, file: _File) -> list[_Range]:
        """Forget what no reader of the file needs any more, and return it. The lock is held."""
        reach = max(LEAST, self._own + 2 * PIECE, self._limit // max(1, self._readers))
        passed = file.pass_by(reach, self._own)
        self.dropped_bytes += sum(each.end - each.start for each in passed)
        return passed

    def _remove(self, path: str, passed: list[_Range]) -> None:
        for each in passed:
            try:
                self._pool.submit(_remove, path, each.tried, each.end)
            except (NoThread, PoolStopped):
                pass  # the pages stay until the kernel needs them


def _remove(path: str, start: int, end: int) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # the file was deleted, and its pages with it
    try:
        os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
