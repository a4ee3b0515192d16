"""The rate of what has happened, and how long to wait until it is back within a limit, as Apache Kafka computes them.

All functions are of values and times that the caller gives: nothing here reads a clock or takes a lock. Sources: Rate,
WindowedSum and SampledStat of Kafka's clients, and QuotaUtils.
"""

from __future__ import annotations

import math

_NO_WAIT = 0
_LONGEST_WAIT = (1 << 63) - 1  # Java's Math.round of infinity


class Rate:
    """The rate per second of recorded values over the last samples.

    The values of `sample_ms` milliseconds are summed up in one sample, and the last `samples` samples are kept
    (`quota.window.num` samples of `quota.window.size.seconds`). Times are milliseconds that never go back.
    """

    __slots__ = ("_current", "_lasts", "_sample_ms", "_samples", "_starts", "_sums")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        # By sample: the sum of its values, when the sample began, and when its last value was recorded. There is one
        # sample more than `samples`, because a sample that overlaps the window counts as a whole.
        self._sums: list[float] = []
        self._starts: list[int] = []
        self._lasts: list[int] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add `value` to the present sample, and begin a new sample first if the present one is complete."""
        if not self._starts:
            self._add_sample(now_ms)
        elif now_ms - self._starts[self._current] >= self._sample_ms:
            self._current = (self._current + 1) % (self._samples + 1)
            if self._current == len(self._starts):
                self._add_sample(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._sums[self._current] += value
        self._lasts[self._current] = now_ms

    def value(self, now_ms: int) -> float:
        """Return the rate per second at this time."""
        window_ms = self.window_ms(now_ms)
        return sum(self._sums) / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> int:
        """Return the milliseconds over which `value` takes the rate at this time.

        That is the time since the oldest sample began, and at least `samples` - 1 whole samples: a rate that is taken
        over less would be very high just after the first value.
        """
        self._expire(now_ms)
        elapsed = now_ms - min(self._starts) if self._starts else 0
        missing = self._samples - 1 - elapsed // self._sample_ms
        if missing > 0:
            elapsed += missing * self._sample_ms
        return max(elapsed, 1)

    @property
    def last_ms(self) -> int | None:
        """When the last value was recorded; None if there was none."""
        return self._lasts[self._current] if self._lasts else None

    def _expire(self, now_ms: int) -> None:
        for index, last in enumerate(self._lasts):
            if now_ms - last >= self._samples * self._sample_ms:
                self._reset(index, now_ms)

    def _add_sample(self, now_ms: int) -> None:
        self._sums.append(0.0)
        self._starts.append(now_ms)
        self._lasts.append(now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._sums[index] = 0.0
        self._starts[index] = self._lasts[index] = now_ms


def throttle_ms(rate: Rate, limit: float, now_ms: int) -> int:
    """Return for how many milliseconds nothing may be recorded until the rate is within `limit`; 0 if it is already.

    With the rate O over a window of W milliseconds and the limit T, that is the X with O * W / (W + X) = T.
    """
    value = rate.value(now_ms)
    if value <= limit:
        return _NO_WAIT
    if not limit:
        return _LONGEST_WAIT
    return java_round((value - limit) / limit * rate.window_ms(now_ms))


def java_round(value: float) -> int:
    """Return `value` rounded to the nearest integer, a half upwards, within 64 bits, as Java's Math.round does."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return _LONGEST_WAIT if value > 0 else -_LONGEST_WAIT - 1
    return max(-_LONGEST_WAIT - 1, min(_LONGEST_WAIT, math.floor(value + 0.5)))
