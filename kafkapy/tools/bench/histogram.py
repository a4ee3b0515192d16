"""Histograms of durations in memory of a fixed size, like HdrHistogram: percentiles are at most 0.8 % too high."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

UNIT_S = 1e-7  # durations are counted in units of 100 ns
_BITS = 7  # 128 buckets for each power of two
_LONGEST = (1 << 31) - 1  # 214 s; a longer duration counts as this one
BUCKETS = ((31 - _BITS) << _BITS) + (1 << _BITS)
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def bucket_of(seconds: float) -> int:
    """Return the bucket that counts a duration."""
    units = min(_LONGEST, max(0, int(seconds / UNIT_S)))
    shift = max(0, units.bit_length() - _BITS - 1)
    return (shift << _BITS) + (units >> shift)


def top_of(bucket: int) -> float:
    """Return the longest duration, in seconds, that a bucket counts."""
    shift = max(0, (bucket >> _BITS) - 1)
    return (((bucket - (shift << _BITS)) + 1 << shift) - 1) * UNIT_S


def added(histograms: Sequence[Sequence[int]]) -> list[int]:
    """Return the histogram of all durations together."""
    return [sum(each) for each in zip(*histograms, strict=True)]


def percentiles(counts: Sequence[int], percents: Sequence[float]) -> list[float]:
    """Return the nearest-rank percentiles, which must be in ascending order, in seconds; 0 without durations."""
    total = sum(counts)
    found: list[float] = []
    seen = 0
    buckets = iter(enumerate(counts))
    bucket = 0
    for percent in percents:
        # 99.9 / 100 * 1000 is above 999 as a float.
        rank = max(1, math.ceil(Fraction(str(percent)) * total / 100)) if total else 0
        while seen < rank:
            bucket, count = next(buckets)
            seen += count
        found.append(top_of(bucket) if total else 0.0)
    return found
