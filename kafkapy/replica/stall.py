"""Notices that writes to a log directory stall, so that appends leave the network threads until it recovers.

The kernel makes a writer of dirty pages wait when the disk falls behind (balance_dirty_pages); such a write
takes milliseconds where it normally takes microseconds (DESIGN section 3: a write over 1 ms).
"""

from __future__ import annotations

import time

# A big append also takes long by its size: this many seconds a byte are not a stall (validation included).
SECONDS_A_BYTE = 20e-9


class StallMonitor:
    """One log directory. `threshold` in seconds; `stalled` stays true until `calm` seconds without a slow write."""

    __slots__ = ("_until", "calm", "stalls", "threshold")

    def __init__(self, threshold: float, calm: float = 0.05) -> None:
        self.threshold = threshold
        self.calm = calm
        self.stalls = 0
        self._until = 0.0

    @property
    def stalled(self) -> bool:
        return self._until > 0.0 and self._still()

    def _still(self) -> bool:
        if time.monotonic() < self._until:
            return True
        self._until = 0.0
        return False

    def observe(self, seconds: float, size: int) -> None:
        """An append of `size` bytes took `seconds`."""
        if seconds > self.threshold + size * SECONDS_A_BYTE:
            self.stalls += 1
            self._until = time.monotonic() + self.calm
