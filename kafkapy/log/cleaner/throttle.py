"""The limit on the bytes per second that all cleaner threads together read and write (Kafka's Throttler)."""

from __future__ import annotations

import threading

from kafkapy.runtime.clock import Clock

_BURST_S = 0.3  # after a pause, this many seconds' worth of bytes may be used at once


class Throttle:
    """A limit on the number of bytes per second. `take` returns how long the caller has to wait after each read or
    write.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rate = bytes_per_second
        self._paid_until = clock.monotonic()

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the limit to this number of bytes per second, effective from now on."""
        with self._lock:
            self._rate = bytes_per_second
            self._paid_until = self._clock.monotonic()

    def take(self, size: int) -> float:
        """Count `size` bytes that were read or written; return how many seconds to wait before the next read or
        write.
        """
        with self._lock:
            now = self._clock.monotonic()
            self._paid_until = max(self._paid_until, now - _BURST_S) + size / self._rate
            return max(self._paid_until - now, 0.0)
