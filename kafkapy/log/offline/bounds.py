"""The bounds between which a partition is read, each an offset, a time, or the partition's start or end."""

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
    """A bound given as a time: it stands for the offset of the first record with this timestamp (ms since 1970) or a
    later one.

    If there is no such record: the end of the partition if `or_end` is True, else an error.
    """

    milliseconds: int
    or_end: bool = True


Bound = int | Time


@dataclass(frozen=True)
class Bounds:
    """Selects the records with start <= offset < end of each partition. Offsets outside of a partition are no error.

    starts, ends: bounds of single partitions by (topic, partition), which replace `start` and `end`.
    """

    start: Bound = EARLIEST
    end: Bound = LATEST
    starts: Mapping[tuple[str, int], Bound] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], Bound] = field(default_factory=dict)

    def of(self, place: Place) -> tuple[Bound, Bound]:
        """Return the bounds (start, end) of the partition `place`."""
        key = place.topic or "", -1 if place.partition is None else place.partition
        return self.starts.get(key, self.start), self.ends.get(key, self.end)


EVERYTHING = Bounds()


class Planner:
    """Divides partitions into splits, the parts of a partition that readers can read independently.

    The log start offsets that are read from the checkpoint files of log directories are cached.
    """

    def __init__(self, bounds: Bounds = EVERYTHING, *, committed: bool = False) -> None:
        self._bounds = bounds
        self._committed = committed
        self._starts = LogStarts()

    def splits(self, place: Place) -> list[Split]:
        """Return the splits of the partition `place` within the bounds, in offset order, one per segment.

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
