"""What clients have used of a quota: a bucket for each user, client id or pair that shares the quota.

Client ids are free text, so the number of buckets has a bound. A bucket that was not used for an hour is removed, as
Kafka's sensors are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from kafkapy.runtime.rates import UNLIMITED, Rate, TokenBucket, Windows
from kafkapy.server.quotas.levels import Pair

MOST = 10_000  # buckets of one kind of quota
EXPIRY_MS = 3_600_000
STATISTICS = Windows(2, 30_000)  # for rates that are only shown: metrics.num.samples and metrics.sample.window.ms


class Bucket:
    """What the clients that share a quota have used of it. Any thread may call the methods."""

    __slots__ = ("_throttle_times", "_throttles", "_until_ms", "limit", "lock", "rate", "shares", "tokens")

    def __init__(self, shares: Pair, windows: Windows, now: int = 0, *, of_tokens: bool) -> None:
        self.shares = shares
        self.limit = UNLIMITED
        self._until_ms = now  # when it was created, or until when its clients are throttled
        self.lock = threading.Lock()  # of the tokens; a Rate needs none
        self.rate = Rate(STATISTICS if of_tokens else windows)
        self.tokens = TokenBucket(windows) if of_tokens else None
        self._throttle_times: Rate | None = None
        self._throttles: Rate | None = None

    @property
    def last_ms(self) -> int:
        """Return the time of the last use, or the end of its clients' throttling if that is later, in ms."""
        return max(self.rate.last_ms, self._until_ms)

    def record(self, value: float, now: int) -> int:
        """Count `value`. Return for how many ms the client is throttled, 0 if the quota is not exceeded."""
        return self.rate.record_and_throttle(value, self.limit, now)

    def add(self, value: float, now: int) -> None:
        """Count `value` without checking the limit. A negative `value` takes back what was counted."""
        self.rate.record(value, now)

    def take(self, tokens: float, now: int, *, strict: bool) -> tuple[bool, int]:
        """Take tokens. Return (True if they were taken, for how many ms the client is throttled).

        With `strict`, tokens are taken only if none is missing; then the client is not throttled, even if tokens are
        missing afterwards. Without `strict`, they are always taken.
        """
        assert self.tokens is not None
        with self.lock:
            if strict and self.tokens.count(self.limit, now) < 0:
                return False, self.tokens.throttle_ms(self.limit, now)
            self.rate.record(tokens, now)
            self.tokens.record(tokens, self.limit, now)
            return True, 0 if strict else self.tokens.throttle_ms(self.limit, now)

    def used(self, now: int) -> float:
        """Return the current rate; for a bucket of tokens, the number of tokens that are left."""
        if self.tokens is None:
            return self.rate.measure(now)
        with self.lock:
            return self.tokens.count(self.limit, now)

    def present_rate(self, now: int) -> float:
        """Return the current rate; for a bucket of tokens, the rate of the last minute."""
        return self.rate.measure(now)

    def throttled(self, ms: int, now: int) -> None:
        """Remember that a client was throttled for this time."""
        with self.lock:
            self._until_ms = max(self._until_ms, now + ms)
            if self._throttle_times is None or self._throttles is None:
                self._throttle_times, self._throttles = Rate(STATISTICS), Rate(STATISTICS)
            self._throttle_times.record(ms, now)
            self._throttles.record(1, now)

    def mean_throttle_ms(self, now: int) -> float | None:
        """Return the mean throttle time, in ms, in the last samples; None if no client was throttled."""
        with self.lock:
            if self._throttle_times is None or self._throttles is None:
                return None
            count = self._throttles.measure(now)
            return self._throttle_times.measure(now) / count if count else None


class Buckets:
    """The buckets of one kind of quota, at most `most`, which are created by `make(shares, now)`. The caller's lock
    protects them.

    `on_removed` is called after buckets were removed, so that clients look up their buckets again.
    """

    def __init__(self, make: Callable[[Pair, int], Bucket], on_removed: Callable[[], object], most: int = MOST) -> None:
        self._make = make
        self._on_removed = on_removed
        self._most = most
        self._buckets: dict[Pair, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(list(self._buckets.values()))

    def find(self, shares: Pair) -> Bucket | None:
        return self._buckets.get(shares)

    def get(self, shares: Pair, now: int) -> Bucket:
        """Return the bucket of the clients that share a quota, and create it if it does not exist.

        If there are too many buckets, the least recently used tenth is removed. The buckets of throttled clients are
        removed last: a client could otherwise end its throttling by inventing client ids.
        """
        bucket = self._buckets.get(shares)
        if bucket is None:
            if len(self._buckets) >= self._most:
                oldest = sorted(self._buckets.values(), key=lambda one: one.last_ms)
                self._remove(oldest[: max(1, self._most // 10)])
            bucket = self._buckets[shares] = self._make(shares, now)
        return bucket

    def expire(self, now: int) -> None:
        """Remove the buckets that were not used for an hour."""
        self._remove([one for one in self._buckets.values() if now - one.last_ms > EXPIRY_MS])

    def _remove(self, buckets: list[Bucket]) -> None:
        for bucket in buckets:
            del self._buckets[bucket.shares]
        if buckets:
            self._on_removed()
