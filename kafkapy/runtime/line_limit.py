"""Limits the log lines of events that clients can cause as often as they like, such as failed logins."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable

from kafkapy.runtime.clock import Clock

OF_A_SOURCE = 3
OF_ALL = 20


class LineLimit:
    """Decides which lines are logged: at most `of_a_source` a second from one source, such as an address, and `of_all`
    a second from all. Any thread may use it."""

    def __init__(self, clock: Clock, of_a_source: int = OF_A_SOURCE, of_all: int = OF_ALL) -> None:
        self._clock = clock
        self._of_a_source = of_a_source
        self._of_all = of_all
        self._lock = threading.Lock()
        self._second = -1
        self._lines: Counter[Hashable] = Counter()  # logged in this second, by source
        self._left_out = 0

    def admit(self, source: Hashable) -> str | None:
        """Return None if a line must not be logged now. Otherwise return what to append to the line: how many lines
        were not logged since the last one, or "" if there were none."""
        with self._lock:
            second = int(self._clock.monotonic())
            if second != self._second:
                self._second = second
                self._lines.clear()
            if self._lines[source] >= self._of_a_source or self._lines.total() >= self._of_all:
                self._left_out += 1
                return None
            self._lines[source] += 1
            left_out, self._left_out = self._left_out, 0
        return f" ({left_out} such lines were left out)" if left_out else ""
