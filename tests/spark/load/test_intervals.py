"""Sets of offsets as intervals: union, difference and overlap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.spark.load.intervals import minus, overlaps, size, union

numbers = st.integers(0, 60)
pairs = st.lists(st.tuples(numbers, numbers), max_size=8)


def offsets(sets: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in sets for offset in range(start, end)}


@given(pairs, pairs)
def test_a_union_has_the_offsets_of_both_in_pairs_that_do_not_touch(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    merged = union(one, other)
    assert offsets(merged) == offsets(one) | offsets(other)
    assert all(before[1] < after[0] for before, after in pairwise(merged))
    assert size(merged) == len(offsets(merged))


@given(numbers, numbers, pairs)
def test_missing_intervals_are_those_that_are_not_covered(start: int, end: int, have: list[tuple[int, int]]) -> None:
    assert offsets(minus(start, end, have)) == set(range(start, end)) - offsets(have)


@given(numbers, numbers, pairs)
def test_overlaps_includes_both_ends(first: int, last: int, sets: list[tuple[int, int]]) -> None:
    last = max(first, last)
    assert overlaps(first, last, union(sets)) == bool(set(range(first, last + 1)) & offsets(sets))
