"""Times and durations as users write and read them."""

import pytest

from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.times import duration_of, duration_text, time_text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("1d12h", 129_600_000),
        ("500ms", 500),
        ("1.5s", 1500),
        ("2H", 7_200_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2S", 86_402_000),
        ("pt0.25s", 250),
        ("0s", 0),
    ],
)
def test_a_duration_is_read(text, milliseconds):
    assert duration_of("--x", text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "P", "PT", "1w", "-5s", "5s1m", "1m 5s", "soon", "٣s"])
def test_the_error_names_an_invalid_duration(text):
    with pytest.raises(CallError, match=r"--x .* is no duration, as in 90s, 15m, 1d12h or PT1H30M"):
        duration_of("--x", text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1000, "1s"),
        (61_500, "1m 1s"),
        (3_600_000, "1h"),
        (3_601_000, "1h"),
        (129_600_000, "1d 12h"),
        (-2000, "-2s"),
    ],
)
def test_a_duration_is_shown_by_its_two_largest_units(milliseconds, text):
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(-1, "-"), (1600000000007, "2020-09-13T12:26:40.007Z"), (10**18, "@1000000000000000000")],
)
def test_a_time_is_shown_in_utc(timestamp, text):
    assert time_text(timestamp) == text
