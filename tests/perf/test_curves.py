"""The growth of a cost, in words and numbers."""

import pytest

from perf.curves import Curve, growth, slope
from perf.measurement import FULL, KAFKAPY, QUICK, TINY


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([(1, 5.0), (10, 5.0), (100, 5.2)], "does not grow with"),
        ([(1, 5.0), (100, 6.0), (10_000, 60.0)], "grows slower than"),
        ([(100, 6.0), (10_000, 600.0)], "grows in proportion to"),
        ([(100, 1.0), (1000, 100.0)], "grows faster than"),
        ([(1, 0.0), (10, 0.0)], "does not grow with"),
        ([(100, 50.0), (1000, 5.0)], "does not grow with"),
    ],
)
def test_growth_is_described_by_the_two_largest_sizes(points, words):
    assert growth(points) == words


def test_the_cost_of_one_more_excludes_fixed_costs():
    assert slope([(1000, 30.0), (0, 10.0), (100, 12.0)]) == 0.02
    assert slope([(1, 10.0), (1000, 9.0)]) == 0.0


def test_a_curve_has_the_median_of_its_runs_at_each_size_and_says_it_in_a_sentence():
    curve = Curve("stop", "s", "partitions")
    for cost in (3.0, 1.0, 2.0):
        curve.add(KAFKAPY, 1000, cost)
    curve.add(KAFKAPY, 10, 0.02)
    assert curve.points(KAFKAPY) == [(10, 0.02), (1000, 2.0)]
    assert curve.sentence(KAFKAPY) == ("0.02 s with 10 partitions, 2 with 1,000: grows in proportion to their number")
    assert curve.as_json("stop")["figures"][KAFKAPY]["1000"] == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("many", "one"), [("segments", "segment"), ("partitions per session", "partition per session")]
)
def test_a_size_of_one_has_the_singular(many, one):
    curve = Curve("fetch", "us", many)
    curve.add(KAFKAPY, 1, 70.0)
    curve.add(KAFKAPY, 1000, 75.0)
    assert curve.sentence(KAFKAPY) == f"70 us with 1 {one}, 75 with 1,000: does not grow with their number"


def test_sizes_go_up_tenfold_and_end_with_the_most():
    assert FULL.sizes() == [1, 10, 100, 1000, 10_000]
    assert QUICK.sizes() == [1, 10, 100, 300]
    assert TINY.sizes(1) == [1]
