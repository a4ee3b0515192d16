"""The counts of a mirror. Each stream's thread updates its own counts; readers add them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkapy.client.cluster import TopicPartition


@dataclass(frozen=True)
class Waiting:
    """Why a stream has no partitions.

    what: The partitions that the stream waits for, for display.
    whose: The members that own these partitions, for display; empty if not known.
    lag: The group's lag over all partitions; None if not known.
    """

    what: str
    whose: str
    lag: int | None


@dataclass
class Counts:
    """The counts of one stream.

    Attributes:
        records, size: Records that the target has acknowledged, and their bytes before compression.
        lost: Records that the target has refused, if the mirror continues after that.
        commits, failed_commits: Commits of offsets.
        fenced: Partitions whose producer was fenced by another mirror.
        lags: The number of offsets between position and end of each owned partition.
        waiting: Set while the stream has no partitions.
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
        """The sum of all lags."""
        return sum(self.lags.values())


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts. It has no lags, because partitions of different sources may have the same name."""
    found = Counts()
    for one in counts:
        found.records += one.records
        found.size += one.size
        found.lost += one.lost
        found.commits += one.commits
        found.failed_commits += one.failed_commits
        found.fenced += one.fenced
    return found
