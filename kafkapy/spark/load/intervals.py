"""Sets of offsets of a partition as sorted, disjoint pairs (start, end), which stand for start <= offset < end.

The loaded offsets of a partition are such a set, and so are the offsets still to load. These sets are short: a
partition that was loaded from its beginning has one pair.
"""

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(*sets: Iterable[Sequence[int]]) -> list[Interval]:
    """Return the union of sets of offsets as sorted pairs (start, end).

    Adjacent pairs are joined, empty pairs left out.
    """
    merged: list[Interval] = []
    for start, end in sorted((pair[0], pair[1]) for pairs in sets for pair in pairs):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def minus(start: int, end: int, have: Iterable[Sequence[int]]) -> list[Interval]:
    """Return the offsets from `start` to before `end` that are not in the set `have`, as sorted pairs (start, end)."""
    left = []
    for taken_start, taken_end in union(have):
        if taken_end <= start:
            continue
        if taken_start >= end:
            break
        if start < taken_start:
            left.append((start, taken_start))
        start = max(start, taken_end)
    if start < end:
        left.append((start, end))
    return left


def overlaps(first: int, last: int, sets: Iterable[Sequence[int]]) -> bool:
    """Return True if any offset from `first` to `last` (included) is in the set `sets` of pairs (start, end)."""
    return any(first < end and start <= last for start, end in sets)


def size(sets: Iterable[Sequence[int]]) -> int:
    """Return the number of offsets in a set of pairs (start, end)."""
    return sum(end - start for start, end in sets)
