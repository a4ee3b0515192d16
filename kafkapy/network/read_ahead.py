"""Keeping just ahead of a consumer that reads what is not in memory.

The first part of a reply that has to wait for the disk makes its connection a cold reader. From then on, one step after
the other, what its replies still have to send is read, and beyond them what it will ask for next: of each file that it
reads in order, as far as the window goes. What was read is not remembered but asked of the page cache, once a step; so
where the kernel's own read-ahead is faster, nothing is left to do. A reader for which nothing had to be read for a
while is no cold reader any more, and costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from kafkapy.network.cold import STEP, ColdReads, Load
from kafkapy.network.replies import Part
from kafkapy.record.file_region import FileHandle, FileRegion

if TYPE_CHECKING:
    from kafkapy.network.sends import Outbox, Residency

MOST_PARTS = 64  # of a reply that are looked at ahead
MOST_FILES = 256  # of a reader that are remembered
CALM_BYTES = 16 * STEP  # so much was sent without a read: it is no cold reader
CALM_REPLIES = 2  # or so many replies, and nothing in order follows
_NO_FURTHER = 1 << 62


class _Track:
    """What is known of a reader's way through a file."""

    __slots__ = ("begin", "end", "handle", "loaded", "size")

    def __init__(self, region: FileRegion, before: _Track | None) -> None:
        self.handle: FileHandle | None = region.handle  # while the reply is sent: it keeps the file open
        self.begin = region.position  # of the last region
        self.end = region.position + region.length
        self.loaded = region.position  # up to here the page cache was asked
        self.size = 0  # of the file, if it is read in order
        if before is not None and before.begin < self.begin <= before.end:
            self.loaded = max(self.loaded, before.loaded)
            self.size = os.fstat(region.handle.fd).st_size


class ReadAhead:
    """Of one connection; on its processor's thread. `drop` when the connection is closed."""

    def __init__(self, cold: ColdReads, pages: Residency) -> None:
        self._cold = cold
        self._pages = pages
        self._tracks: dict[str, _Track] = {}  # by the file's path: nothing here keeps a file open for long
        self._current: list[_Track] = []  # of the last reply
        self._load: Load | None = None
        self._track: _Track | None = None  # that `_load` is for
        self._box: Outbox | None = None
        self._demand: tuple[Load, Callable[[int, BaseException | None], None]] | None = None
        self._calm_bytes = self._calm_replies = 0
        cold.readers += 1

    def note(self, parts: Iterable[Part]) -> None:
        """A reply that is going to be sent."""
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
        """Reads what a reply waits for: `done(n, None)`, so many bytes from `position` on are there, or the error."""

        track = self._tracks.get(str(handle.path))
        if track is not None and track.loaded > position:
            track.loaded = position  # it was there, and is gone again

        def loaded(end: int, error: BaseException | None) -> None:
            self._demand = None
            if track is not None:
                track.loaded = max(track.loaded, end)
            done(max(0, end - position), error)

        self._calm_bytes = self._calm_replies = 0
        self._demand = self._cold.load(handle, position, position + min(length, STEP), loaded), loaded

    def go_on(self, box: Outbox) -> bool:
        """Begins the next read, if there is something to read ahead and none under way. False: no cold reader."""
        if self._load is not None:
            return True
        found = self._next(box)
        if found is not None:
            self._calm_bytes = self._calm_replies = 0
            track, start, end = found
            assert track.handle is not None
            self._box, self._track = box, track
            self._cold.ahead += 1
            self._load = self._cold.load(track.handle, start, end, self._loaded)
            return True
        if not box.parts and self._demand is None:
            follows = any(track.end < track.size for track in self._current)
            for track in self._current:
                track.handle = None
            return self._calm_bytes < CALM_BYTES and (follows or self._calm_replies < CALM_REPLIES)
        return True

    def drop(self) -> None:
        """Nothing more is read for this reader; what waits for a thread is given up."""
        self._cold.readers -= 1
        if self._load is not None:
            self._cold.forget(self._load, self._loaded)
        if self._demand is not None:
            self._cold.forget(*self._demand)

    def _loaded(self, end: int, error: BaseException | None) -> None:
        load, track, box = self._load, self._track, self._box
        assert load is not None
        assert track is not None
        assert box is not None
        self._load = None
        if error is not None or end == load.start:
            track.loaded, track.size = _NO_FURTHER, 0  # who needs it is told what is wrong
        else:
            track.loaded = max(track.loaded, end)
        self.go_on(box)

    def _next(self, box: Outbox) -> tuple[_Track, int, int] | None:
        """The first step that is not in memory, in the order in which it will be sent."""
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
            step = min(track.loaded + STEP, max(end, track.size))
            if not self._pages.resident(track.handle.fd, track.loaded, step - track.loaded):
                return track, track.loaded, step
            track.loaded = step
        return None
