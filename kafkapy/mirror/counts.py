"""What a mirror counts. Each stream has counts of its own, which only its thread changes; others add them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkapy.client.cluster import TopicPartition


@dataclass
class Counts:
    """Attributes:
    records, size: that the target has acknowledged, and their bytes before compression.
    lost: records that the target did not take, where the mirror goes on all the same.
    commits, failed_commits: of offsets.
    fenced: partitions whose transactions another mirror has ended.
    lags: offsets between where it is and the end, by partition that is this stream's.
    """

    records: int = 0
    size: int = 0
    lost: int = 0
    commits: int = 0
    failed_commits: int = 0
    fenced: int = 0
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


def total(counts: Iterable[Counts]) -> Counts:
    """All of them in one, but for the lags: topics of several sources may have one name."""
    found = Counts()
    for one in counts:
        found.records += one.records
        found.size += one.size
        found.lost += one.lost
        found.commits += one.commits
        found.failed_commits += one.failed_commits
        found.fenced += one.fenced
    return found
