"""The segments of a log, in order: an immutable list that is replaced at every change, so that readers need no lock.

The list also caches positions: offset -> (segment, position of the batch that contains the offset). Two kinds are
cached: where the last appends began, because a consumer that keeps up reads from there, and the ends of the last reads
that stop below the log's end (at the high watermark or the last stable offset). A new list in which segments were
removed or replaced starts with an empty cache. So a reader with an older list cannot add a position that is wrong for
the newer one.

After a clean stop only the active segment of a log is made at once. The others are OlderSegments, each of which is made
when it is first used: a broker may have 100,000 of them, and most are never read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from kafkapy.log.segments.segment import Segment
from kafkapy.log.storage.files import OlderFiles

_POSITIONS = 128

Position = tuple[Segment, int]

_MAKING = threading.Lock()


class OlderSegments:
    """Segments of a log that are made when they are first used, ascending by base offset. Shared by the lists of the
    log in which nothing but the last segment has changed.
    """

    __slots__ = ("_made", "_make", "_sizes", "base_offsets", "on_damage", "size")

    def __init__(self, files: OlderFiles, make: Callable[[int, int], Segment]) -> None:
        """`make(base offset, size of the .log file)` makes the segment of one of the `files`."""
        self._sizes = files.sizes
        self.base_offsets = files.base_offsets
        self.size = sum(files.sizes)  # of the .log files, in bytes
        self._make = make
        self._made: list[Segment | None] = [None] * len(files)
        self.on_damage: Callable[[Segment], object] | None = None  # set in each segment that is made

    @property
    def made(self) -> list[Segment]:
        return [segment for segment in self._made if segment is not None]

    def at(self, index: int) -> Segment:
        segment = self._made[index]
        if segment is None:
            with _MAKING:  # two readers must get the same segment
                segment = self._made[index]
                if segment is None:
                    segment = self._make(self.base_offsets[index], self._sizes[index])
                    segment.on_damage = self.on_damage
                    self._made[index] = segment
        return segment


class SegmentList:
    """The segments of a log, ascending by base offset. The last one is the active segment."""

    __slots__ = ("_bases", "_items", "_newer", "_older", "_positions")

    def __init__(self, segments: Iterable[Segment] = (), older: OlderSegments | None = None) -> None:
        """`older`: the segments before `segments`."""
        self._newer = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._older = older
        self._items = self._newer if older is None else None
        self._bases = [segment.base_offset for segment in self._newer]
        if older is not None:
            self._bases = older.base_offsets + self._bases
        self._positions: dict[int, Position] = {}

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[Segment]:
        return map(self.at, range(len(self._bases)))

    @property
    def items(self) -> tuple[Segment, ...]:
        """All segments. Makes those that were not made yet, so callers that need only some use the other methods."""
        items = self._items
        if items is None:
            items = self._items = tuple(self)
        return items

    @property
    def made(self) -> Iterable[Segment]:
        """The segments that may have changed or be open: all but those that were not used since the log was loaded."""
        return self._newer if self._older is None else (*self._older.made, *self._newer)

    def watch(self, on_damage: Callable[[Segment], object]) -> None:
        """Have `on_damage` called with a segment when one of its indexes is found to be damaged."""
        if self._older is not None:
            self._older.on_damage = on_damage
        for segment in self.made:
            segment.on_damage = on_damage

    @property
    def active(self) -> Segment:
        return self._newer[-1]

    @property
    def base_offsets(self) -> list[int]:
        return self._bases

    @property
    def size(self) -> int:
        """The size of all .log files in bytes."""
        newer = sum(segment.size for segment in self._newer)
        return newer if self._older is None else newer + self._older.size

    def at(self, index: int) -> Segment:
        """Return the segment number `index`, from 0 on."""
        before = len(self._bases) - len(self._newer)
        if index >= before:
            return self._newer[index - before]
        assert self._older is not None
        return self._older.at(index)

    def from_(self, index: int) -> Iterator[Segment]:
        """Iterate over the segments from number `index` on."""
        return map(self.at, range(index, len(self._bases)))

    def position(self, offset: int) -> Position | None:
        """Return the cached (segment, byte position) of the batch that contains `offset`, None if it is not cached."""
        return self._positions.get(offset)

    def remember(self, offset: int, position: Position) -> None:
        """Cache `position`, that is (segment, byte position), of the batch that contains `offset`.

        Appends and readers call this without a common lock.
        """
        positions = self._positions
        if len(positions) >= _POSITIONS:
            # list() copies the keys atomically. Two threads may drop the same keys.
            for oldest in list(positions)[: _POSITIONS // 2]:
                positions.pop(oldest, None)
        positions[offset] = position

    def floor(self, offset: int) -> int:
        """Return the index in `items` of the segment that would contain `offset`, -1 if `offset` lies below all."""
        return bisect_right(self._bases, offset) - 1

    def between(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that contain offsets from `start` to before `end` (Kafka's LogSegments.values)."""
        if start >= end:
            return ()
        return tuple(map(self.at, range(max(self.floor(start), 0), bisect_left(self._bases, end))))

    def after(self, segment: Segment) -> Segment | None:
        """Return the segment that follows `segment` by offset, or None. `segment` may no longer be in the list."""
        at = bisect_right(self._bases, segment.base_offset)
        return self.at(at) if at < len(self._bases) else None

    def with_added(self, segment: Segment) -> SegmentList:
        """Return a new list that also contains `segment`, in place of a segment with the same base offset."""
        if not self._bases or segment.base_offset > self._bases[-1]:  # a roll: nothing to sort
            added = SegmentList()
            added._older = self._older
            added._newer, added._bases = (*self._newer, segment), [*self._bases, segment.base_offset]
            added._items = added._newer if self._older is None else None
            added._positions = self._positions  # cached positions stay valid
            return added
        return SegmentList([*(one for one in self.items if one.base_offset != segment.base_offset), segment])

    def without(self, gone: Iterable[Segment]) -> SegmentList:
        """Return a new list that does not contain the segments in `gone`."""
        dropped = set(map(id, gone))
        return SegmentList(one for one in self.items if id(one) not in dropped)
