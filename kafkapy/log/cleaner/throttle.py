"""The limit on what all cleaners read and write together (Kafka's Throttler)."""

from __future__ import annotations

import threading

from kafkapy.runtime.clock import Clock

_BURST_S = 0.3  # so much of the rate may be used at once, after a pause


class Throttle:
    """Bytes are paid for in time: who takes some is told how long to wait before the next."""

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rate = bytes_per_second
        self._paid_until = clock.monotonic()

    def set_rate(self, bytes_per_second: float) -> None:
        with self._lock:
            self._rate = bytes_per_second
            self._paid_until = self._clock.monotonic()

    def take(self, size: int) -> float:
        """Seconds to wait, after `size` bytes."""
        with self._lock:
            now = self._clock.monotonic()
            self._paid_until = max(self._paid_until, now - _BURST_S) + size / self._rate
            return max(self._paid_until - now, 0.0)
