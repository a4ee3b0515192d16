"""Medians, spreads, and comparisons with goals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from perf.measurement import BARE, CLIENT_LIMIT, KAFKA, KAFKAPY, OTHER, PEERS, Row

Verdict = Literal["reached", "missed", "no difference"]


@dataclass(frozen=True)
class Summary:
    median: float
    low: float
    high: float
    runs: int

    @property
    def spread(self) -> float:
        return self.high - self.low


def summary(figures: Sequence[float]) -> Summary | None:
    return Summary(median(figures), min(figures), max(figures), len(figures)) if figures else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of an ordered sequence; `share` from 0 to 1."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True)
class Comparison:
    """One row with its figures. `ratio` is kafkapy / `reference`."""

    row: Row
    sides: dict[str, Summary]
    client: Summary | None = None  # the busiest thread of kafkapy's client, % of a core (Row.client)

    @property
    def reference(self) -> str:
        """The side that kafkapy is compared with: the other checkout if it was measured, else Apache Kafka 3.9.1."""
        return OTHER if OTHER in self.sides else KAFKA

    @property
    def ratio(self) -> float | None:
        return self.ratio_to(self.reference)

    @property
    def within_spread(self) -> bool:
        return self.no_difference(self.reference)

    def ratio_to(self, side: str) -> float | None:
        kafkapy, other = self.sides.get(KAFKAPY), self.sides.get(side)
        return kafkapy.median / other.median if kafkapy and other and other.median else None

    def no_difference(self, side: str) -> bool:
        """Return True if the medians of kafkapy and this side differ by less than the runs of one of them do."""
        kafkapy, other = self.sides.get(KAFKAPY), self.sides.get(side)
        if not kafkapy or not other:
            return False
        return max(kafkapy.spread, other.spread) > abs(kafkapy.median - other.median)

    @property
    def in_one_run(self) -> bool:
        """True if the goal is a comparison with Apache Kafka, and one of the two was measured only once, so that it is
        unknown by how much runs differ."""
        goal, kafkapy = self.row.goal, self.sides.get(KAFKAPY)
        other = self.sides.get(goal.side) if goal and goal.side in PEERS else None
        return kafkapy is not None and other is not None and min(kafkapy.runs, other.runs) == 1

    @property
    def client_bound(self) -> bool:
        """True if kafkapy's client limited the figure."""
        return self.client is not None and self.client.median >= CLIENT_LIMIT

    @property
    def verdict(self) -> Verdict | None:
        """Whether the goal is reached; None without a goal or without a figure to compare.

        A goal in comparison with Apache Kafka is not reached by a difference that is smaller than the spread.
        """
        reached, goal = self._reached, self.row.goal
        if reached and goal and goal.side in PEERS and self.no_difference(goal.side):
            return "no difference"
        return None if reached is None else "reached" if reached else "missed"

    @property
    def _reached(self) -> bool | None:
        """True if the medians reach the goal; None without a goal or without a figure to compare."""
        kafkapy, goal = self.sides.get(KAFKAPY), self.row.goal
        if kafkapy is None or goal is None:
            return None
        against = self.sides.get(goal.side) if goal.side else None
        if goal.side and against is None:
            return None
        bound = goal.bound * (against.median if against else 1.0)
        return kafkapy.median >= bound if self.row.better == "higher" else kafkapy.median <= bound


def compare(rows: Sequence[Row], measured: dict[str, dict[str, list[float]]]) -> list[Comparison]:
    """Return a comparison for each measured row. `measured`: row key -> side -> figures."""
    found = []
    for row in rows:
        sides = {side: summary(figures) for side, figures in measured.get(row.key, {}).items()}
        kept = {side: each for side in (*PEERS, OTHER, KAFKAPY, BARE) if (each := sides.get(side))}
        if kept:
            found.append(Comparison(row, kept, summary(measured.get(row.client, {}).get(KAFKAPY, ()))))
    return found
