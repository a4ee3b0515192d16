"""Histograms of durations: bounded memory, and percentiles that are at most 0.8 % too high."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.tools.bench.histogram import BUCKETS, UNIT_S, added, bucket_of, percentiles, top_of

DURATIONS = st.floats(0, 200)


@given(DURATIONS)
def test_a_bucket_has_the_duration_and_is_narrow(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert 0 <= bucket < BUCKETS
    assert seconds - UNIT_S <= top_of(bucket) <= seconds * 1.008 + UNIT_S


@given(DURATIONS, DURATIONS)
def test_longer_durations_are_in_higher_buckets(one: float, other: float) -> None:
    assert (bucket_of(one) <= bucket_of(other)) or one > other


def test_what_cannot_be_counted_exactly_is_in_the_first_or_the_last_bucket() -> None:
    assert bucket_of(-1e-9) == 0
    assert bucket_of(1e9) == BUCKETS - 1


@given(st.lists(DURATIONS, min_size=1, max_size=50), st.lists(st.floats(0, 100), max_size=5).map(sorted))
def test_percentiles_are_those_of_the_durations(durations: list[float], percents: list[float]) -> None:
    counts = [0] * BUCKETS
    for seconds in durations:
        counts[bucket_of(seconds)] += 1
    ordered = sorted(durations)
    for percent, found in zip(percents, percentiles(counts, percents), strict=True):
        exact = ordered[max(1, math.ceil(Fraction(str(percent)) * len(ordered) / 100)) - 1]
        assert found == pytest.approx(exact, rel=0.009, abs=2 * UNIT_S)


def test_the_longest_of_a_thousand_durations_is_above_the_percentile_of_99_9() -> None:
    counts = [0] * BUCKETS
    counts[bucket_of(0.001)] = 999
    counts[bucket_of(0.1)] = 1
    assert percentiles(counts, [99.9, 99.99]) == pytest.approx([0.001, 0.1], rel=0.009)


def test_histograms_are_added_and_an_empty_one_has_no_percentiles() -> None:
    assert added([[1, 0, 2], [0, 5, 1]]) == [1, 5, 3]
    assert percentiles([0] * BUCKETS, [50, 99]) == [0, 0]
