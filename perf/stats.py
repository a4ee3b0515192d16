"""Medians, spreads, and comparisons with goals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from perf.measurement import BARE, KAFKA, KAFKAPY, OTHER, Row


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

    @property
    def reference(self) -> Summary | None:
        """The side that kafkapy is compared with: the other checkout if it was measured, else Apache Kafka."""
        return self.sides.get(OTHER) or self.sides.get(KAFKA)

    @property
    def ratio(self) -> float | None:
        kafkapy, reference = self.sides.get(KAFKAPY), self.reference
        return kafkapy.median / reference.median if kafkapy and reference and reference.median else None

    @property
    def within_spread(self) -> bool:
        """True if the spread of one side is larger than the difference between the two."""
        kafkapy, reference = self.sides.get(KAFKAPY), self.reference
        if not kafkapy or not reference:
            return False
        return max(kafkapy.spread, reference.spread) > abs(kafkapy.median - reference.median)

    @property
    def reached(self) -> bool | None:
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
        kept = {side: each for side in (KAFKA, OTHER, KAFKAPY, BARE) if (each := sides.get(side))}
        if kept:
            found.append(Comparison(row, kept))
    return found
