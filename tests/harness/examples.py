"""The number of random examples of a property test, and of points of a life test: fewer in the quick run."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

share = 1.0  # of the examples of a full run; tests/conftest.py sets it before the test modules are imported


def examples(count: int) -> int:
    """Return `count`, the number of examples of a full run, or the number for the quick run."""
    return max(5, int(count * share))


def some(points: Sequence[T]) -> Sequence[T]:
    """Return all points, such as those at which a test crashes; in the quick run a part of them, at even distances."""
    step = max(1, min(round(1 / share), len(points)))
    return points[random.randrange(step) :: step]
