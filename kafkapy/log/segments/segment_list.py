"""The segments of a log, in order: an immutable list that is replaced at every change, so that readers need no lock.

The list also caches positions: offset -> (segment, position of the batch that contains the offset). Two kinds are
cached: where the last appends began, because a consumer that keeps up reads from there, and the ends of the last reads
that stop below the log's end (at the high watermark or the last stable offset). A new list in which segments were
removed or replaced starts with an empty cache. So a reader with an older list cannot add a position that is wrong for
the newer one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from kafkapy.log.segments.segment import Segment

_POSITIONS = 128

Position = tuple[Segment, int]


class SegmentList:
    """The segments of a log, ascending by base offset, in `items`. The last one is the active segment."""

    __slots__ = ("_bases", "_positions", "items")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.items: tuple[Segment, ...] = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = [segment.base_offset for segment in self.items]
        self._positions: dict[int, Position] = {}

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    @property
    def active(self) -> Segment:
        return self.items[-1]

    @property
    def base_offsets(self) -> list[int]:
        return self._bases

    @property
    def size(self) -> int:
        """The size of all .log files in bytes."""
        return sum(segment.size for segment in self.items)

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
        first = max(self.floor(start), 0)
        return tuple(segment for segment in self.items[first:] if segment.base_offset < end)

    def after(self, segment: Segment) -> Segment | None:
        """Return the segment that follows `segment` by offset, or None. `segment` may no longer be in the list."""
        at = bisect_right(self._bases, segment.base_offset)
        return self.items[at] if at < len(self.items) else None

    def with_added(self, segment: Segment) -> SegmentList:
        """Return a new list that also contains `segment`, in place of a segment with the same base offset."""
        if not self.items or segment.base_offset > self._bases[-1]:  # a roll: nothing to sort
            added = SegmentList()
            added.items, added._bases = (*self.items, segment), [*self._bases, segment.base_offset]
            added._positions = self._positions  # cached positions stay valid
            return added
        return SegmentList([*(one for one in self.items if one.base_offset != segment.base_offset), segment])

    def without(self, gone: Iterable[Segment]) -> SegmentList:
        """Return a new list that does not contain the segments in `gone`."""
        dropped = set(map(id, gone))
        return SegmentList(one for one in self.items if id(one) not in dropped)
