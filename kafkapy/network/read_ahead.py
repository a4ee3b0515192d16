"""Reads ahead for a consumer whose records are not in the page cache.

A connection becomes a cold reader when a part of a reply has to wait for the disk. From then on the broker reads, one
STEP at a time, the bytes that the connection's replies still have to send. After that it reads the bytes that the
client will fetch next, from each file that the client reads in order, as far as the window allows. A connection for
which nothing had to be read for a while stops being a cold reader, and costs nothing.

When the reader has passed them, the bytes that the broker or the kernel has read ahead are removed from the page cache
(`kafkapy.network.drop_behind`). If a reader's next bytes are in the page cache already, the kernel is assumed to have
read them ahead, unless there are more of them than the kernel ever reads ahead. A read thread reads such bytes, too:
that makes the kernel begin its next read-ahead, which takes time, and a network thread must not spend that time in
`sendfile`. Bytes of files that were written to a moment ago stay in the page cache: other consumers read new records,
and their pages may not be on the disk yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from kafkapy.network.cold import STEP, ColdReads, Done, Load
from kafkapy.network.drop_behind import PIECE
from kafkapy.network.replies import Part
from kafkapy.record.file_region import FileHandle, FileRegion

if TYPE_CHECKING:
    from kafkapy.network.sends import Outbox, Residency

MOST_PARTS = 64  # parts of a reply that read-ahead checks
MOST_FILES = 256  # files for which the position of a reader is kept
CALM_BYTES = 16 * STEP  # a reader that was sent this many bytes without a read from disk is no cold reader any more
CALM_REPLIES = 2  # nor is a reader that was sent this many replies without a read, if nothing follows in its files
HOT_BYTES = 32 * STEP  # more than the kernel reads ahead (two windows of 8 MiB): other readers have used these bytes
NEW_S = 30  # seconds after a write in which a file counts as new; the kernel writes its pages to the disk after 30 s
_NO_FURTHER = 1 << 62


class _Track:
    """A reader's position in a file, and the position up to which read-ahead has read this file."""

    __slots__ = ("begin", "drops", "end", "handle", "is_in_order", "is_new", "loaded", "moved", "path", "size")

    def __init__(self, region: FileRegion, path: str, before: _Track | None) -> None:
        self.path = path
        self.handle: FileHandle | None = region.handle  # keeps the file open; None when the reply is sent
        self.begin = region.position  # of the last region that was sent
        self.end = region.position + region.length
        self.loaded = region.position  # the page cache was checked up to this position
        stat = os.fstat(region.handle.fd)
        self.size = stat.st_size
        self.is_new = stat.st_mtime > time.time() - NEW_S
        self.is_in_order = False  # whether the reader reads this file in order, and the bytes after `end` follow
        # whether the last bytes were read for readers like this one
        self.drops: bool = before is not None and before.drops and not self.is_new
        self.moved: int | None = None  # DropBehind knows that everything before this position was sent
        if before is not None and before.begin < self.begin <= before.end:
            self.loaded = max(self.loaded, before.loaded)
            self.is_in_order = True
            self.moved = before.moved

    @property
    def follows(self) -> bool:
        return self.is_in_order and self.end < self.size


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
        self._demand: tuple[Load, Done] | None = None
        self._is_quiet = False  # nothing was sent since the last call of `_trim`
        self._has_left = False  # DropBehind no longer has this reader, because it was quiet
        cold.on_trim.add(self._trim)
        self._calm_bytes = self._calm_replies = 0

    def note(self, parts: Iterable[Part], *, alone: bool) -> None:
        """Remember the file regions among the parts of a reply that waits to be sent on this connection.

        `resume` reads these regions ahead, and then the bytes after them, which the client will fetch next. `alone`:
        all earlier replies were sent.
        """
        before, self._current = self._current, []
        paths: set[str] = set()
        self._calm_replies += 1
        for part in parts:
            if type(part) is FileRegion:
                path = str(part.handle.path)
                track = _Track(part, path, self._tracks.get(path))
                self._tracks.pop(path, None)
                self._tracks[path] = track  # at the end, as the last one used
                self._current.append(track)
                self._calm_bytes += part.length
                if alone and path not in paths:
                    self._sent(track, track.begin)
                paths.add(path)
        for track in before:
            track.handle = None
            if alone and track.end >= track.size and self._tracks.get(track.path) is track:
                self._leave(track)  # the reader has read all of this file
        for path in list(islice(self._tracks, max(0, len(self._tracks) - max(MOST_FILES, len(self._current))))):
            self._leave(self._tracks.pop(path))

    def demand(self, handle: FileHandle, position: int, length: int, done: Done) -> None:
        """Read file data that a reply waits for: the `length` bytes at `position`, but at most STEP bytes.

        Calls `done(n, None)` when n bytes from `position` on are in memory, or `done(0, error)` if the read failed.
        """
        track = self._tracks.get(str(handle.path))
        if track is not None and track.loaded > position:
            track.loaded = position  # these bytes were in the page cache, and were evicted

        def loaded(end: int, error: BaseException | None) -> None:
            assert self._demand is not None
            load, self._demand = self._demand[0], None
            if track is not None:
                track.loaded = max(track.loaded, end)
                track.drops = not load.stays
            self._is_quiet = False
            done(max(0, end - position), error)

        self._calm_bytes = self._calm_replies = 0
        self._demand = self._read(handle, track, position, position + min(length, STEP), loaded), loaded

    def _read(self, handle: FileHandle, track: _Track | None, start: int, end: int, done: Done) -> Load:
        """Have the bytes read, see ColdReads.load, and count the read as shared if another reader has begun it.

        If the bytes are a hole of a few pages among many in the page cache, they stay in the page cache: others use
        this file, and would have to read these pages from the disk again and again.
        """
        is_hole = (
            track is not None
            and not track.drops
            and end < track.size
            and self._pages.resident(handle.fd, end, min(HOT_BYTES, track.size - end))
        )
        load = self._cold.load(handle, start, end, done, stays=is_hole or (track is not None and track.is_new))
        if len(load.waiting) > 1 and load is not self._load and (self._demand is None or load is not self._demand[0]):
            self._cold.shared += 1
        return load

    def _trim(self) -> None:
        """Let DropBehind remove what was read if nothing was sent since the last call: the client may pause for
        hours."""
        if self._is_quiet and not self._has_left and self._demand is None and self._load is None:
            self._leave_all()
            self._has_left = True
        self._is_quiet = True

    def _sent(self, track: _Track, position: int) -> None:
        """Tell DropBehind that the bytes of the file before `position` were sent, at most once for each PIECE."""
        behind, moved = self._cold.behind, track.moved
        if behind is None or (moved is not None and moved <= position < moved + PIECE):
            return
        # Also pass the bytes since the last call: the kernel may have read them ahead, so that nothing was read here.
        # If there are many more of them, the reader has jumped.
        since = moved if track.drops and moved is not None and position < moved + 4 * PIECE else None
        behind.move(self, track.path, position, since)
        track.moved = position

    def _leave(self, track: _Track) -> None:
        track.moved = None
        if self._cold.behind is not None:
            self._cold.behind.leave(self, track.path)

    def _leave_all(self) -> None:
        for track in self._tracks.values():
            self._leave(track)

    def resume(self, box: Outbox) -> bool:
        """Begin the next read, if there is something to read ahead and no read is in progress.

        Return False if nothing had to be read for a while, so that read-ahead is no longer needed; the caller then
        calls `drop`.
        """
        self._is_quiet = self._has_left = False
        if box.index < len(box.parts):
            part = box.parts[box.index]
            track = self._tracks.get(str(part.handle.path)) if type(part) is FileRegion else None
            if track is not None:
                self._sent(track, part.position + box.offset)  # type: ignore[union-attr]
        # Two reads of a file at the same time would confuse the kernel's read-ahead.
        if self._load is not None or self._demand is not None:
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
        if not box.parts:
            follows = any(track.follows for track in self._current)
            for track in self._current:
                track.handle = None
            return self._calm_bytes < CALM_BYTES and (follows or self._calm_replies < CALM_REPLIES)
        return True

    def drop(self) -> None:
        """End the read-ahead of this connection. Reads that have not begun are skipped, and no callback is called."""
        self._cold.on_trim.remove(self._trim)
        self._leave_all()
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
            track.loaded, track.is_in_order = _NO_FURTHER, False
        else:
            track.drops = not load.stays
            track.loaded = max(track.loaded, end)
        self.resume(box)

    def _next(self, box: Outbox) -> tuple[_Track, int, int] | None:
        """Return the next file data to read ahead, at most one STEP, as (track of the file, begin, end).

        The data of the replies and of later fetches is checked in the order in which it will be sent. The result is the
        first data that has to be read, None if nothing within the window has to be read.
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
        following = [track for track in self._current if track.handle is not None and track.follows]
        share = max(STEP, left // max(1, len(following)))
        for track in following[: max(0, left // share)]:
            absent = self._absent(track, track.end, min(track.end + share, track.size))
            if absent is not None:
                return absent
        return None

    def _absent(self, track: _Track, begin: int, end: int) -> tuple[_Track, int, int] | None:
        assert track.handle is not None
        behind = self._cold.behind
        track.loaded = max(begin, track.loaded)
        while track.loaded < end:
            step = min(track.loaded + STEP, max(end, track.size))
            there = track.loaded if behind is None else min(step, behind.read_until(track.path, track.loaded))
            if there > track.loaded and self._pages.resident(track.handle.fd, track.loaded, there - track.loaded):
                self._calm_bytes = self._calm_replies = 0  # another reader has read it
                self._cold.shared += 1
                track.drops = not track.is_new
                track.loaded = there
                continue
            checked = max(step, min(track.loaded + HOT_BYTES, track.size)) if track.drops else step
            if not self._pages.resident(track.handle.fd, track.loaded, checked - track.loaded):
                return track, track.loaded, step
            if behind is not None and track.drops and track.loaded + HOT_BYTES > track.size:
                self._calm_bytes = 0  # the kernel may have read up to the end
                behind.note_read(track.path, track.loaded, step)
            else:
                track.drops = False
            track.loaded = step
        return None
