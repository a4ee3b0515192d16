"""The counts of a mirror, such as copied records. Each stream's thread updates its own counts; readers add them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkapy.client.cluster import TopicPartition


@dataclass(frozen=True)
class Waiting:
    """The reason why a mirror stream has no partitions.

    what: The partitions that the stream waits for, as text for display.
    whose: The members that own these partitions, as text for display; empty if not known.
    lag: The group's lag over all partitions; None if not known.
    """

    what: str
    whose: str
    lag: int | None


@dataclass
class Counts:
    """The counts of one mirror stream.

    Attributes:
        records, size: Number of records that the target has acknowledged, and their bytes before compression.
        lost: Number of records that the target has refused, if the mirror continues after that.
        commits, failed_commits: Number of offset commits that succeeded, and that failed.
        fenced: How often a partition's producer was fenced by another mirror.
        lags: The number of offsets between position and end of each owned partition.
        waiting: The reason why the stream has no partitions, None while it has some.
    """

    records: int = 0
    size: int = 0
    lost: int = 0
    commits: int = 0
    failed_commits: int = 0
    fenced: int = 0
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    waiting: Waiting | None = None

    @property
    def lag(self) -> int:
        """The sum of the lags of the owned partitions."""
        return sum(self.lags.values())


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sums of the counts of several streams.

    The result has no lags, because partitions of different sources may have the same name.
    """
    found = Counts()
    for one in counts:
        found.records += one.records
        found.size += one.size
        found.lost += one.lost
        found.commits += one.commits
        found.failed_commits += one.failed_commits
        found.fenced += one.fenced
    return found
