"""The rate of what has happened, and how long to wait until it is back within a limit, as Apache Kafka computes them.

All functions are of values and times that the caller gives: nothing here reads a clock or takes a lock. Sources: Rate,
WindowedSum and SampledStat of Kafka's clients, and QuotaUtils.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LONGEST_MS = (1 << 31) - 1  # throttle_time_ms is an int32


class Windows(NamedTuple):
    """How a rate is sampled: `number` samples of `ms` milliseconds (quota.window.num, quota.window.size.seconds)."""

    number: int = 11
    ms: int = 1000


class Rate:
    """The rate per second of recorded values over the last samples.

    The values of one window are summed up in one sample. Times are milliseconds that never go back.
    """

    __slots__ = ("_current", "_lasts", "_sample_ms", "_samples", "_starts", "_sums")

    def __init__(self, windows: Windows) -> None:
        self._samples, self._sample_ms = windows
        # By sample: the sum of its values, when the sample began, and when its last value was recorded. There is one
        # sample more than windows, because a sample that overlaps the window counts as a whole.
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

    def measure(self, now_ms: int) -> float:
        """Return the rate per second at this time."""
        window_ms = self.window_ms(now_ms)
        return sum(self._sums) / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> int:
        """Return the milliseconds over which `measure` takes the rate at this time.

        That is the time since the oldest sample began, and at least all windows but one: a rate that is taken over less
        would be very high just after the first value.
        """
        self._expire(now_ms)
        elapsed = now_ms - min(self._starts) if self._starts else 0
        missing = self._samples - 1 - elapsed // self._sample_ms
        if missing > 0:
            elapsed += missing * self._sample_ms
        return max(elapsed, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return for how many milliseconds nothing may be recorded until the rate is within `limit`; 0 if it already
        is.

        With the rate O over a window of W milliseconds and the limit T, that is the X with O * W / (W + X) = T.
        """
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        return _rounded((rate - limit) / limit * self.window_ms(now_ms)) if limit else LONGEST_MS

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


def _rounded(ms: float) -> int:
    """Return `ms` rounded as Java's Math.round does, at most LONGEST_MS."""
    return LONGEST_MS if ms >= LONGEST_MS else math.floor(ms + 0.5)
