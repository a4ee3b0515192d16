"""Sets of offsets of one partition as sorted, disjoint pairs [start, end).

What a directory has of a partition, and what is still to be loaded, are such sets. They stay short: a directory that
was loaded from the beginning on has one pair a partition.
"""

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(*sets: Iterable[Sequence[int]]) -> list[Interval]:
    """All offsets of these sets; pairs that touch become one, empty ones go."""
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
    """What of [start, end) is not in `have`."""
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
    """Whether one of the offsets first .. last (both included) is in `sets`."""
    return any(first < end and start <= last for start, end in sets)


def size(sets: Iterable[Sequence[int]]) -> int:
    """The number of offsets."""
    return sum(end - start for start, end in sets)
