"""The bounds between which a partition is read: offsets, times, or the partition's start and end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkapy.log.offline.ends import LogEnd, LogStarts, end_of
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.lookups import record_since
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.splits import Split, splits_of

EARLIEST, LATEST = -2, -1  # special offsets, as in ListOffsets


@dataclass(frozen=True)
class Time:
    """The offset of the first record whose timestamp (ms since 1970) is this one or later.

    If there is no such record, the end of the partition with `or_end`, else an error.
    """

    milliseconds: int
    or_end: bool = True


Bound = int | Time


@dataclass(frozen=True)
class Bounds:
    """Selects the records with start <= offset < end. Bounds outside of a partition are no error.

    starts, ends: bounds of single partitions by (topic, partition), which replace `start` and `end`.
    """

    start: Bound = EARLIEST
    end: Bound = LATEST
    starts: Mapping[tuple[str, int], Bound] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], Bound] = field(default_factory=dict)

    def of(self, place: Place) -> tuple[Bound, Bound]:
        """Return (start, end) for a partition."""
        key = place.topic or "", -1 if place.partition is None else place.partition
        return self.starts.get(key, self.start), self.ends.get(key, self.end)


EVERYTHING = Bounds()


class Planner:
    """Divides partitions into splits. Caches the checkpoints that it reads in their log directories."""

    def __init__(self, bounds: Bounds = EVERYTHING, *, committed: bool = False) -> None:
        self._bounds = bounds
        self._committed = committed
        self._starts = LogStarts()

    def splits(self, place: Place) -> list[Split]:
        """Return the splits of a partition in offset order, one per segment.

        Raises OfflineError, CheckpointError, OSError.
        """
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
