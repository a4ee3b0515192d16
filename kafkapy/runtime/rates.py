"""The arithmetic of quotas: a rate over windows (`Rate`, in ext/rates.pyx), and a token bucket.

Pure functions of the recorded values and the times in ms that are passed in. For the same values and times, the results
are those of Kafka to the millisecond (tests/data/quotas compares them). Sources: TokenBucket and MetricConfig of Apache
Kafka.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kafkapy._ext.rates import LONGEST_MS, Rate

__all__ = ["LONGEST_MS", "UNLIMITED", "Rate", "TokenBucket", "Windows"]

UNLIMITED = float((1 << 63) - 1)  # the limit that stands for no limit, as in Kafka


class Windows(NamedTuple):
    """How a rate is sampled: `number` samples of `ms` milliseconds (quota.window.num, quota.window.size.seconds)."""

    number: int = 11
    ms: int = 1000

    @property
    def seconds(self) -> float:
        """Return the length of all windows together."""
        return self.number * (self.ms / 1000)


class TokenBucket:
    """Tokens that are refilled at `limit` per second, up to what all windows together allow.

    The bucket begins full. Recording may take more tokens than there are; later callers have to wait until none is
    missing. Not safe for use by several threads at a time.
    """

    __slots__ = ("_seconds", "_tokens", "_updated")

    def __init__(self, windows: Windows) -> None:
        self._seconds = windows.seconds
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
