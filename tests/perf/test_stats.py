"""Medians, ratios, goals, and differences smaller than the spread."""

import pytest

from perf.measurement import BARE, KAFKA, KAFKA_4, KAFKAPY, Goal, Row
from perf.report import verdict
from perf.stats import Comparison, compare, percentile


def compared(goal: Goal | None, better: str = "higher", **sides: list[float]) -> Comparison:
    row = Row("row", "a figure", "MB/s", better, goal)  # type: ignore[arg-type]
    return compare([row], {"row": sides})[0]


def test_the_ratio_is_kafkapy_to_the_reference_by_the_medians() -> None:
    found = compared(None, kafka=[90, 100, 500], kafkapy=[300, 1, 200])
    assert found.ratio == 2.0


@pytest.mark.parametrize(
    ("goal", "better", "ours", "expected"),
    [
        (Goal(1.2), "higher", 120, "reached"),
        (Goal(1.2), "higher", 119, "missed"),
        (Goal(0.4), "lower", 40, "reached"),
        (Goal(0.4), "lower", 41, "missed"),
        (Goal(60, None), "lower", 60, "reached"),
        (Goal(60, None), "lower", 61, "missed"),
        (Goal(1.2, BARE), "lower", 12, "reached"),
        (Goal(1.2, BARE), "lower", 13, "missed"),
        (Goal(0.3, KAFKA_4), "lower", 60, "reached"),
        (Goal(0.3, KAFKA_4), "lower", 61, "missed"),
        (None, "lower", 1, None),
    ],
)
def test_a_goal_is_compared_with_its_own_side(
    goal: Goal | None, better: str, ours: float, expected: str | None
) -> None:
    found = compared(goal, better, **{KAFKA: [100], KAFKA_4: [200], KAFKAPY: [ours], BARE: [10]})
    assert found.verdict == expected


def test_a_goal_without_its_other_side_is_neither_reached_nor_missed() -> None:
    found = compared(Goal(1.2), kafkapy=[100])
    assert found.verdict is None
    assert verdict(found) == ""


def test_a_difference_smaller_than_the_spread_reaches_no_goal() -> None:
    assert verdict(compared(Goal(1.0), kafka=[100, 140], kafkapy=[125, 130])) == "no difference"
    assert verdict(compared(Goal(1.2), kafka=[100, 140], kafkapy=[125, 130])) == "missed; no difference"
    assert verdict(compared(None, kafka=[100, 140], kafkapy=[125, 130])) == "no difference"
    assert verdict(compared(Goal(1.0), kafka=[100, 110], kafkapy=[200, 210])) == "reached"
    assert verdict(compared(Goal(60, None), "lower", kafka=[50, 70], kafkapy=[50, 55])) == "reached; no difference"


def test_a_goal_that_compares_with_kafka_and_is_reached_in_one_run_says_so() -> None:
    assert verdict(compared(Goal(1.0), kafka=[100], kafkapy=[200])) == "reached (one run)"
    assert verdict(compared(Goal(1.0), kafka=[100, 110], kafkapy=[200])) == "reached (one run)"
    assert verdict(compared(Goal(1.0), kafka=[300], kafkapy=[200])) == "missed"
    assert verdict(compared(Goal(0.3, KAFKA_4), **{KAFKA: [1, 1], KAFKA_4: [100], KAFKAPY: [200, 210]})) == (
        "reached (one run)"
    )
    assert verdict(compared(Goal(60, None), "lower", kafkapy=[50])) == "reached"
    assert verdict(compared(Goal(1.0, BARE), bare=[50], kafkapy=[50])) == "reached"


def test_both_versions_of_kafka_have_a_ratio_and_a_spread() -> None:
    found = compared(Goal(1.0), **{KAFKA: [100, 100], KAFKA_4: [150, 350], KAFKAPY: [300, 300]})
    assert (found.ratio, found.ratio_to(KAFKA_4)) == (3.0, 1.2)
    assert (found.no_difference(KAFKA), found.no_difference(KAFKA_4)) == (False, True)


def test_a_figure_is_limited_by_a_client_whose_busiest_thread_uses_a_core() -> None:
    row = Row("rate", "a figure", "MB/s", "higher", Goal(1.3), client="busy")
    for busiest, limited in ((89.0, False), (90.0, True)):
        measured = {"rate": {KAFKA: [100.0], KAFKAPY: [110.0]}, "busy": {KAFKA: [99.0], KAFKAPY: [busiest]}}
        (found,) = compare([row], measured)
        assert found.client_bound is limited
        assert ("the client is the limit" in verdict(found)) is limited


def test_rows_that_were_not_measured_are_left_out() -> None:
    assert compare([Row("row", "a figure", "s", "lower")], {}) == []
    assert set(compared(None, kafka=[1], kafkapy=[]).sides) == {KAFKA}
    assert set(compared(None, kafkapy=[1]).sides) == {KAFKAPY}


def test_percentiles_are_nearest_rank() -> None:
    ordered = [float(figure) for figure in range(1, 1001)]
    assert [percentile(ordered, share) for share in (0, 0.5, 0.99, 0.999, 1)] == [1, 500, 990, 999, 1000]
    assert percentile([7.0], 0.999) == 7.0
