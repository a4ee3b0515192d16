"""Detect that writes to a log directory stall, so that appends run on pool threads until the disk recovers.

When the disk falls behind, the kernel makes writers of dirty pages wait (balance_dirty_pages). Such a write, and those
after it, take milliseconds instead of microseconds. A single slow write is more often a thread that lost its CPU for a
moment. Moving appends to pool threads for that costs more than it saves, so only two slow writes within a short time
count as a stall.
"""

from __future__ import annotations

import time

# The seconds for each byte that a write may take in addition to the threshold, because a large write takes longer.
SECONDS_A_BYTE = 20e-9


class StallMonitor:
    """Watches the times of writes to one log directory, to detect that they stall.

    A write is slow if it takes more than `threshold` seconds. `stalled` becomes True at the second slow write within
    `calm` seconds. It stays True until `lasts` is called when `calm` seconds have passed without a slow write. `stalls`
    counts all slow writes, also single ones.
    """

    __slots__ = ("_suspect_until", "_until", "calm", "stalled", "stalls", "threshold")

    def __init__(self, threshold: float, calm: float = 0.05) -> None:
        self.threshold = threshold
        self.calm = calm
        self.stalls = 0
        self.stalled = False
        self._until = 0.0
        self._suspect_until = float("-inf")

    def lasts(self) -> bool:
        """Return True if writes to the log directory stall at present; resets `stalled` when the stall is over."""
        if self.stalled and time.monotonic() >= self._until:
            self.stalled = False
        return self.stalled

    def observe(self, seconds: float, size: int) -> None:
        """Record that a write of `size` bytes took `seconds`, which may begin a stall."""
        if seconds > self.threshold + size * SECONDS_A_BYTE:
            self.stalls += 1
            now = time.monotonic()
            if now - seconds <= self._suspect_until:
                self._until = now + self.calm  # before `stalled`, which other threads reset when this is over
                self.stalled = True
            self._suspect_until = now + self.calm
