"""Rates and throttle times equal those of Apache Kafka (tests/data/rates/RateHistory.java made the histories)."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from kafkapy.runtime.rates import Rate, java_round, throttle_ms

HISTORY = Path(__file__).parent.parent / "data" / "rates" / "history.txt"


def histories() -> Iterator[tuple[Rate, float, list[list[str]]]]:
    lines = [line.split() for line in HISTORY.read_text().splitlines()]
    rates = (Rate(int(samples), int(size)) for word, samples, size, _ in (x for x in lines if x[0] == "history"))
    limits = (float(line[3]) for line in lines if line[0] == "history")
    steps = (list(group) for is_step, group in groupby(lines, lambda line: line[0] != "history") if is_step)
    return zip(rates, limits, steps, strict=True)


def test_rates_windows_and_throttle_times_equal_kafkas() -> None:
    compared = 0
    for rate, limit, steps in histories():
        for time, value, *expected in steps:
            now = int(time)
            rate.record(float(value), now)
            throttle = throttle_ms(rate, limit, now)
            assert [repr(rate.value(now)), rate.window_ms(now), throttle] == [
                repr(float(expected[0])),
                int(expected[1]),
                int(expected[2]),
            ]
            compared += 1
    assert compared == 24 * 40


def test_a_rate_without_values_is_zero() -> None:
    rate = Rate(11, 1000)
    assert rate.value(5000) == 0
    assert rate.last_ms is None
    rate.record(7, 6000)
    assert rate.last_ms == 6000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 1),
        (-0.5, 0),
        (1.49, 1),
        (float("nan"), 0),
        (float("inf"), 2**63 - 1),
        (float("-inf"), -(2**63)),
        (1e300, 2**63 - 1),
    ],
)
def test_numbers_are_rounded_as_in_java(value: float, expected: int) -> None:
    assert java_round(value) == expected
