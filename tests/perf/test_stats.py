"""Medians, ratios, goals, and differences smaller than the spread."""

import pytest

from perf.measurement import BARE, KAFKA, KAFKAPY, Goal, Row
from perf.report import verdict
from perf.stats import Comparison, compare, percentile


def compared(goal: Goal | None, better: str = "higher", **sides: list[float]) -> Comparison:
    row = Row("row", "a figure", "MB/s", better, goal)  # type: ignore[arg-type]
    return compare([row], {"row": sides})[0]


def test_the_ratio_is_kafkapy_to_the_reference_by_the_medians() -> None:
    found = compared(None, kafka=[90, 100, 500], kafkapy=[300, 1, 200])
    assert found.ratio == 2.0


@pytest.mark.parametrize(
    ("goal", "better", "ours", "reached"),
    [
        (Goal(1.2), "higher", 120, True),
        (Goal(1.2), "higher", 119, False),
        (Goal(0.4), "lower", 40, True),
        (Goal(0.4), "lower", 41, False),
        (Goal(60, None), "lower", 60, True),
        (Goal(60, None), "lower", 61, False),
        (Goal(1.2, BARE), "lower", 12, True),
        (Goal(1.2, BARE), "lower", 13, False),
        (None, "lower", 1, None),
    ],
)
def test_a_goal_is_compared_with_its_own_side(
    goal: Goal | None, better: str, ours: float, reached: bool | None
) -> None:
    assert compared(goal, better, kafka=[100], kafkapy=[ours], bare=[10]).reached is reached


def test_a_goal_without_its_other_side_is_neither_reached_nor_missed() -> None:
    found = compared(Goal(1.2), kafkapy=[100])
    assert found.reached is None
    assert verdict(found) == ""


def test_a_difference_smaller_than_the_spread_is_reported() -> None:
    assert verdict(compared(Goal(1.0), kafka=[100, 140], kafkapy=[125, 130])) == "reached; spread > difference"
    assert verdict(compared(None, kafka=[100, 140], kafkapy=[125, 130])) == "spread > difference"
    assert verdict(compared(Goal(1.0), kafka=[100, 110], kafkapy=[200, 210])) == "reached"


def test_rows_that_were_not_measured_are_left_out() -> None:
    assert compare([Row("row", "a figure", "s", "lower")], {}) == []
    assert set(compared(None, kafka=[1], kafkapy=[]).sides) == {KAFKA}
    assert set(compared(None, kafkapy=[1]).sides) == {KAFKAPY}


def test_percentiles_are_nearest_rank() -> None:
    ordered = [float(figure) for figure in range(1, 1001)]
    assert [percentile(ordered, share) for share in (0, 0.5, 0.99, 0.999, 1)] == [1, 500, 990, 999, 1000]
    assert percentile([7.0], 0.999) == 7.0
