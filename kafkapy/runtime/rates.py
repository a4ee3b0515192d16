"""The arithmetic of quotas: a rate over windows, a token bucket, and how long a client is throttled.

Pure functions of the recorded values and the times in ms that are passed in. For the same values and times, the results
are those of Kafka to the millisecond (tests/data/quotas compares them). Sources: Rate, SampledStat, TokenBucket and
QuotaUtils of Apache Kafka.
"""

from __future__ import annotations

import math
from typing import NamedTuple

UNLIMITED = float((1 << 63) - 1)  # the limit that stands for no limit, as in Kafka
LONGEST_MS = (1 << 31) - 1  # throttle_time_ms is an int32


class Windows(NamedTuple):
    """How a rate is sampled: `number` samples of `ms` milliseconds (quota.window.num, quota.window.size.seconds)."""

    number: int = 11
    ms: int = 1000

    @property
    def seconds(self) -> float:
        """Return the length of all windows together."""
        return self.number * (self.ms / 1000)


class Rate:
    """The rate per second of recorded values.

    A sample is [sum, begin, last record]. It is complete after one window, and forgotten when its last record is older
    than all windows together. Not safe for use by several threads at a time.
    """

    __slots__ = ("_at", "_expires", "_least_s", "_samples", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._least_s = (windows.number - 1) * windows.ms / 1000 * (1 - 1e-9)  # a bit less, for errors of rounding
        self._samples: list[list[float]] = []
        self._at = 0  # the present sample
        self._total = 0.0  # of all samples, except for errors of rounding
        self._expires = math.inf  # no sample is forgotten before this time

    def record(self, value: float, now: int) -> None:
        """Add `value` to the present sample, or to a new one if that is complete."""
        if not self._samples:
            self._begin(now)
        sample = self._samples[self._at]
        if now - sample[1] >= self._windows.ms:
            sample = self._next(now)
        sample[0] += value
        sample[2] = now
        self._total += value

    def _begin(self, now: int) -> None:
        self._samples.append([0.0, now, now])
        self._expires = now + self._windows.number * self._windows.ms

    def _next(self, now: int) -> list[float]:
        # One sample more than the windows: the oldest may have begun before the windows and overlap them.
        self._at = (self._at + 1) % (self._windows.number + 1)
        if self._at == len(self._samples):
            self._samples.append([0.0, now, now])
        else:
            self._samples[self._at][:] = 0.0, now, now
        self._total = sum(sample[0] for sample in self._samples)
        return self._samples[self._at]

    def _forget_old(self, now: int) -> None:
        if now < self._expires:
            return
        age = self._windows.number * self._windows.ms
        for sample in self._samples:
            if now - sample[2] >= age:
                sample[:] = 0.0, now, now
        self._expires = min(sample[2] for sample in self._samples) + age
        self._total = sum(sample[0] for sample in self._samples)

    def measure(self, now: int) -> float:
        """Return the rate per second at this time."""
        size = self.window_ms(now)
        total = 0.0
        for sample in self._samples:  # not sum(), whose result may differ from Java's in the last digit
            total += sample[0]
        return total / (size / 1000)

    def window_ms(self, now: int) -> int:
        """Return the milliseconds over which the rate is taken: since the oldest sample began, but at least all windows
        without the present one. So a new client may use a whole set of windows at once."""
        self._forget_old(now)
        if not self._samples:
            self._begin(now)
        elapsed = now - int(min(sample[1] for sample in self._samples))
        missing = self._windows.number - 1 - elapsed // self._windows.ms
        if missing > 0:
            elapsed += missing * self._windows.ms
        return max(elapsed, 1)

    def may_exceed(self, limit: float, more: float = 0.0) -> bool:
        """Return False if the rate is certainly not above `limit` after `more` is recorded. Cheaper than `measure`."""
        return self._total + more > limit * self._least_s

    def throttle_ms(self, limit: float, now: int) -> int:
        """Return how long nothing must be recorded until the rate is `limit`. 0 if it is not exceeded."""
        self._forget_old(now)
        if not self.may_exceed(limit):
            return 0
        rate = self.measure(now)
        if rate <= limit:
            return 0
        return _rounded((rate - limit) / limit * self.window_ms(now)) if limit else LONGEST_MS


class TokenBucket:
    """Tokens that are refilled at `limit` per second, up to what all windows together allow.

    It begins full. Recording may take more tokens than there are; the next ones have to wait until none is missing.
    Not safe for use by several threads at a time.
    """

    __slots__ = ("_seconds", "_tokens", "_updated")

    def __init__(self, windows: Windows) -> None:
        self._seconds = windows.number * (windows.ms / 1000)
        self._tokens = 0.0
        self._updated: int | None = None

    def count(self, limit: float, now: int) -> float:
        """Return the number of tokens at this time; negative if more were taken than there were."""
        burst = self._seconds * limit
        if self._updated is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * ((now - self._updated) / 1000))
        self._updated = now
        return self._tokens

    def record(self, value: float, limit: float, now: int) -> None:
        """Take `value` tokens."""
        self._tokens = min(self._seconds * limit, self.count(limit, now) - value)

    def throttle_ms(self, limit: float, now: int) -> int:
        """Return how long to wait until no token is missing. 0 if none is."""
        tokens = self.count(limit, now)
        if tokens >= 0:
            return 0
        return _rounded(-tokens / limit * 1000) if limit else LONGEST_MS


def _rounded(ms: float) -> int:
    """Return `ms` rounded as Java's Math.round does, at most LONGEST_MS."""
    return LONGEST_MS if ms >= LONGEST_MS else math.floor(ms + 0.5)
