"""Notices that writes to a log directory stall, so that appends leave the network threads until it recovers.

The kernel makes a writer of dirty pages wait when the disk falls behind (balance_dirty_pages); such a write
takes milliseconds where it normally takes microseconds, and so do those that follow. One slow write alone is more
often a thread that lost its core to another for a moment, and appends that leave the network threads for that cost
more than they save: two slow ones, one soon after the other, are a stall.
"""

from __future__ import annotations

import time

# A big append also takes long by its size: this many seconds a byte are not a stall (validation included).
SECONDS_A_BYTE = 20e-9


class StallMonitor:
    """One log directory. `threshold` in seconds; `stalled` stays true until `calm` seconds without a slow write.

    stalls: slow writes, also single ones.
    """

    __slots__ = ("_suspect_until", "_until", "calm", "stalls", "threshold")

    def __init__(self, threshold: float, calm: float = 0.05) -> None:
        self.threshold = threshold
        self.calm = calm
        self.stalls = 0
        self._until = 0.0
        self._suspect_until = float("-inf")

    @property
    def stalled(self) -> bool:
        return self._until > 0.0 and self._still()

    def _still(self) -> bool:
        if time.monotonic() < self._until:
            return True
        self._until = 0.0
        return False

    def observe(self, seconds: float, size: int) -> None:
        """A write of `size` bytes took `seconds`."""
        if seconds > self.threshold + size * SECONDS_A_BYTE:
            self.stalls += 1
            now = time.monotonic()
            if now - seconds <= self._suspect_until:
                self._until = now + self.calm
            self._suspect_until = now + self.calm
