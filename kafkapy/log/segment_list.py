"""The segments of a log, in order: an immutable list that every change replaces, so that readers need no lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from kafkapy.log.segment import Segment


class SegmentList:
    """Ascending by base offset; the last one is the active segment."""

    __slots__ = ("_bases", "items")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.items: tuple[Segment, ...] = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = [segment.base_offset for segment in self.items]

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
        """Bytes of all .log files."""
        return sum(segment.size for segment in self.items)

    def floor(self, offset: int) -> int:
        """The index of the segment in which `offset` would be; -1 if it lies before all."""
        return bisect_right(self._bases, offset) - 1

    def between(self, start: int, end: int) -> tuple[Segment, ...]:
        """The segments that hold offsets from `start` up to and without `end` (Kafka's LogSegments.values)."""
        if start >= end:
            return ()
        first = max(self.floor(start), 0)
        return tuple(segment for segment in self.items[first:] if segment.base_offset < end)

    def after(self, segment: Segment) -> Segment | None:
        """The next segment; also if `segment` itself has left the list."""
        at = bisect_right(self._bases, segment.base_offset)
        return self.items[at] if at < len(self.items) else None

    def with_added(self, segment: Segment) -> SegmentList:
        """With the segment, in the place of one with the same base offset."""
        if not self.items or segment.base_offset > self._bases[-1]:  # a roll: two copies of memory, however many
            added = SegmentList()
            added.items, added._bases = (*self.items, segment), [*self._bases, segment.base_offset]
            return added
        return SegmentList([*(one for one in self.items if one.base_offset != segment.base_offset), segment])

    def without(self, gone: Iterable[Segment]) -> SegmentList:
        dropped = set(map(id, gone))
        return SegmentList(one for one in self.items if id(one) not in dropped)
