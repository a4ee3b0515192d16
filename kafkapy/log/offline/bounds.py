"""From where to where a partition is to be read, as people say it: by offset, by time, from its begin, to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkapy.log.offline.ends import LogEnd, LogStarts, end_of
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import record_since
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.splits import Split, splits_of

EARLIEST, LATEST = -2, -1  # offsets of ListOffsets


@dataclass(frozen=True)
class Time:
    """The offset of the first record of this time (ms since 1970) or later. Where there is none, the end of the
    partition, or an error."""

    milliseconds: int
    or_end: bool = True


Bound = int | Time


@dataclass(frozen=True)
class Bounds:
    """Records with start <= offset < end. What lies outside of what is there is nothing, and no error.

    starts, ends: of single partitions, by topic and number.
    """

    start: Bound = EARLIEST
    end: Bound = LATEST
    starts: Mapping[tuple[str, int], Bound] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], Bound] = field(default_factory=dict)

    def of(self, place: Place) -> tuple[Bound, Bound]:
        """(start, end) for a partition."""
        key = place.topic or "", -1 if place.partition is None else place.partition
        return self.starts.get(key, self.start), self.ends.get(key, self.end)


EVERYTHING = Bounds()


class Planner:
    """Turns partitions into splits; remembers what it has read of their log directories."""

    def __init__(self, bounds: Bounds = EVERYTHING, *, committed: bool = False) -> None:
        self._bounds = bounds
        self._committed = committed
        self._starts = LogStarts()

    def splits(self, place: Place) -> list[Split]:
        """Those of a partition, in order, one a segment. Raises OfflineError, CheckpointError, OSError."""
        end = end_of(place)
        first = self._starts.of(place)
        start, behind = (_offset(place, bound, first, end) for bound in self._bounds.of(place))
        return splits_of(place, max(start, first), behind, end, committed=self._committed)


def _offset(place: Place, bound: Bound, first: int, end: LogEnd) -> int:
    if not isinstance(bound, Time):
        return {EARLIEST: first, LATEST: end.offset}.get(bound, bound)
    if place.kafka_07:
        raise OfflineError(f"{place.name} is of Kafka 0.7, whose messages have no timestamps: give offsets.")
    found = record_since(place.segments, bound.milliseconds, end.position)
    if found is None and not bound.or_end:
        raise OfflineError(f"{place.name} has no record with timestamp {bound.milliseconds} or a later one.")
    return end.offset if found is None else found.record.offset
