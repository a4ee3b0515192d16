"""How a cost grows with a size: points and a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

# (largest exponent of the size, words): how the cost grows between the two largest sizes.
_WORDS = ((0.15, "does not grow with"), (0.85, "grows slower than"), (1.15, "grows in proportion to"))
_FASTER = "grows faster than"


@dataclass
class Curve:
    """A cost at several sizes. `of` names the things whose number is the size.

    `costs`: side -> size -> one figure per run.
    """

    label: str
    unit: str
    of: str
    costs: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def add(self, side: str, size: int, cost: float) -> None:
        self.costs.setdefault(side, {}).setdefault(size, []).append(cost)

    def points(self, side: str) -> list[tuple[int, float]]:
        """Return (size, median of the runs), the smallest size first."""
        return [(size, median(runs)) for size, runs in sorted(self.costs.get(side, {}).items())]

    def sizes(self) -> list[int]:
        return sorted({size for costs in self.costs.values() for size in costs})

    def sentence(self, side: str) -> str:
        points = self.points(side)
        if not points:
            return ""
        (smallest, first), (largest, last) = points[0], points[-1]
        of = re.sub(r"s\b", "", self.of, count=1) if smallest == 1 else self.of  # "partitions per session"
        text = f"{_with_digits(first)} {self.unit} with {smallest:,} {of}, {_with_digits(last)} with {largest:,}"
        return f"{text}: {growth(points)} their number" if len(points) > 1 else text

    def as_json(self, key: str) -> dict[str, Any]:
        return {
            "key": key,
            "label": self.label,
            "unit": self.unit,
            "of": self.of,
            "points": {side: self.points(side) for side in self.costs},
            "figures": {side: {str(size): runs for size, runs in costs.items()} for side, costs in self.costs.items()},
            "growth": {side: self.sentence(side) for side in self.costs},
        }


def _with_digits(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.3g}"


def growth(points: list[tuple[int, float]]) -> str:
    """Describe the growth by the two largest sizes, because a fixed cost hides it at small ones."""
    (size, cost), (larger, more) = points[-2:]
    if cost <= 0 or more <= 0:
        return _WORDS[0][1]
    exponent = math.log(more / cost) / math.log(larger / size)
    return next((words for most, words in _WORDS if exponent <= most), _FASTER)


def slope(points: Iterable[tuple[int, float]]) -> float:
    """Return the cost of one more of `Curve.of`, by the smallest and the largest size; 0 if noise makes it negative."""
    ordered = sorted(points)
    (smallest, first), (largest, last) = ordered[0], ordered[-1]
    return max((last - first) / max(largest - smallest, 1), 0.0)
