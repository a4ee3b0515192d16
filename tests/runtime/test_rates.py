"""Rates and throttle times equal those of Apache Kafka (tests/data/rates/RateHistory.java made the histories)."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from kafkapy.runtime.rates import LONGEST_MS, Rate, Windows

HISTORY = Path(__file__).parent.parent / "data" / "rates" / "history.txt"


def histories() -> Iterator[tuple[Rate, float, list[list[str]]]]:
    lines = [line.split() for line in HISTORY.read_text().splitlines()]
    rates = (
        Rate(Windows(int(samples), int(size))) for word, samples, size, _ in (x for x in lines if x[0] == "history")
    )
    limits = (float(line[3]) for line in lines if line[0] == "history")
    steps = (list(group) for is_step, group in groupby(lines, lambda line: line[0] != "history") if is_step)
    return zip(rates, limits, steps, strict=True)


def test_rates_windows_and_throttle_times_equal_kafkas() -> None:
    compared = 0
    for rate, limit, steps in histories():
        for time, value, *expected in steps:
            now = int(time)
            rate.record(float(value), now)
            throttle = rate.throttle_ms(limit, now)
            assert [repr(rate.measure(now)), rate.window_ms(now), throttle] == [
                repr(float(expected[0])),
                int(expected[1]),
                min(int(expected[2]), LONGEST_MS),
            ]
            compared += 1
    assert compared == 24 * 40


def test_a_rate_without_values_is_zero() -> None:
    assert Rate(Windows()).measure(5000) == 0
