"""Detects that this process was stopped for so long that its ZooKeeper session may have expired.

A process that is stopped (SIGSTOP, a suspended machine) sends no pings to ZooKeeper. When the process continues, other
members may own its partitions, and some time passes until the ZooKeeper client learns that the session has expired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


def _now() -> float:
    """Return the seconds of a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


Clock = Callable[[], float]
_clock: Clock = _now if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic

TICKS = 5  # number of ticks in the time that one tick is valid for


class SessionClock:
    """Detects pauses of this process by regular ticks. After a pause, ticks count only once `is_alive` returns True.

    kazoo sends a ping after a third of the session time-out, so a process whose session has expired was stopped for at
    least two thirds of that time-out. A tick is valid for half of the time-out.

    Args:
        name: The group member's name, for log lines.
        timeout_s: Returns the time-out of the present session. ZooKeeper may grant another time-out in each session.
        is_alive: Asks ZooKeeper whether the session still exists. May block.
    """

    def __init__(
        self, name: str, timeout_s: Callable[[], float], is_alive: Callable[[], bool], clock: Clock = _clock
    ) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._is_alive = is_alive
        self._clock = clock
        self._good_until = clock() + self._good_for_s
        self._asks = False

    @property
    def _good_for_s(self) -> float:
        return self._timeout_s() / 2

    def is_good(self) -> bool:
        """Return False if this process was stopped for so long that the session may have expired."""
        return self._clock() < self._good_until

    def tick(self) -> None:
        """Record that this process runs.

        The clock is good for another half of the session time-out if the previous tick is still valid or ZooKeeper says
        that the session is alive.
        """
        now = self._clock()
        if now >= self._good_until:
            if not self._asks:
                self._asks = True
                text = "%s was stopped for a while; it continues reading once ZooKeeper says that its session is alive"
                log.warning(text, self._name)
            if not self._is_alive():
                return
            self._asks = False
        # Count from `now`, not from ZooKeeper's response: the process may have been stopped again since the question.
        self._good_until = now + self._good_for_s

    def run(self, stop: threading.Event, after_tick: Callable[[], object]) -> None:
        """Tick regularly, and call `after_tick` each time, until the event `stop` is set."""
        while not stop.wait(self._good_for_s / TICKS):
            self.tick()
            after_tick()
