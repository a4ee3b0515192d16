"""A timer thread, which calls functions at given times, for time-outs of delayed operations and connections.

Most entries are cancelled before their time, so cancelling is a single assignment. When more than half of the heap is
cancelled entries, they are removed.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from itertools import count

from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.threads import Thread

log = logging.getLogger(__name__)

_CLEAN_UP_FROM = 1024


class TimerEntry:
    """A scheduled callback. A cancelled entry no longer refers to the callback or the timer."""

    __slots__ = ("_timer", "callback")

    def __init__(self, timer: Timer, callback: Callable[[], object]) -> None:
        self._timer: Timer | None = timer
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancel the call unless it has begun. Calling this again is harmless."""
        timer, self._timer, self.callback = self._timer, None, None
        if timer is not None:
            # A race between two threads may lose a count, which only delays the clean-up.
            timer._cancelled += 1
            if timer._cancelled >= _CLEAN_UP_FROM:
                timer._clean_up()


class Timer:
    """Calls callbacks on its own thread, in order of their times. Callbacks must be short, because all share the
    thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, name: str = "timer") -> None:
        self._clock = clock
        self._name = name
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._heap: list[tuple[float, int, TimerEntry]] = []
        self._order = count()
        self._cancelled = 0
        self._wakes_at = float("-inf")
        self._thread: Thread | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the timer's thread. Raises NoThread if that is not possible."""
        with self._condition:
            if self._thread is None and not self._stopped:
                thread = Thread(self._run, f"kafkapy-{self._name}")
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Discard all entries, and wait for a callback in progress. Entries added later are never called."""
        with self._condition:
            self._stopped = True
            self._heap.clear()
            self._condition.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def schedule(self, delay_s: float, callback: Callable[[], object]) -> TimerEntry:
        """Call `callback()` on the timer's thread in `delay_s` seconds, or at once if `delay_s` is not positive. Return
        the entry, which can be cancelled."""
        entry = TimerEntry(self, callback)
        due = self._clock.monotonic() + delay_s
        with self._lock:  # not the condition, whose methods take longer
            if not self._stopped:
                heapq.heappush(self._heap, (due, next(self._order), entry))
                # The thread sleeps until an earlier entry, often a cancelled one, so most calls need not wake it.
                if due < self._wakes_at:
                    self._wakes_at = due
                    self._condition.notify()
        return entry

    def __len__(self) -> int:
        """Return the number of callbacks that have been neither called nor cancelled."""
        with self._condition:
            return sum(entry.callback is not None for _, _, entry in self._heap)

    def _clean_up(self) -> None:
        if self._cancelled * 2 > len(self._heap):
            with self._condition:
                self._heap = [item for item in self._heap if item[2].callback is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            callback = entry.callback
            entry.callback = entry._timer = None
            if callback is None:
                continue
            try:
                callback()
            except Exception:
                log.exception("a callback of the %s failed: %s", self._name, callback)
            del callback, entry

    def _next(self) -> TimerEntry | None:
        with self._condition:
            while not self._stopped:
                if not self._heap:
                    self._wakes_at = float("inf")
                    self._condition.wait()
                    continue
                due = self._heap[0][0]
                if self._heap[0][2].callback is None:
                    heapq.heappop(self._heap)
                    self._cancelled = max(0, self._cancelled - 1)
                elif due <= self._clock.monotonic():
                    self._wakes_at = float("-inf")  # the thread is awake and needs no notification
                    return heapq.heappop(self._heap)[2]
                else:
                    self._wakes_at = due
                    self._clock.wait_until(self._condition, due)
            return None
