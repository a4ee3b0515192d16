"""The clock that is passed to all code that reads the time or waits, so that tests need not sleep.

`time_ms` is the wall clock (record timestamps, retention); `monotonic` never goes back (time-outs). Code that waits
with a deadline calls `wait_until` with its condition. Code that waits in another way, such as with epoll, subscribes a
callback, which only the manual clock of tests calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A source of time that can also wait."""

    def time_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment. This time never goes back."""
        ...

    def wait_until(self, condition: threading.Condition, deadline: float | None) -> None:
        """Wait on `condition`, which the caller holds, until it is notified or `monotonic()` reaches `deadline` (None
        means no deadline).

        May return early without a reason, as Condition.wait may, so callers must test their predicate again.
        """
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the time is advanced manually (never on the system clock)."""
        ...


class SystemClock:
    """The machine's clock: real time."""

    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # not a method that calls it: network threads ask at every turn

    def wait_until(self, condition: threading.Condition, deadline: float | None) -> None:
        if deadline is None:
            condition.wait()
            return
        timeout = deadline - time.monotonic()
        if timeout > 0:
            # Waits of the C library overflow beyond some hundred years; callers wait again after a day.
            condition.wait(min(timeout, 86_400.0))

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Do nothing: this clock is never advanced manually."""


SYSTEM_CLOCK: Clock = SystemClock()


class ManualClock:
    """A clock for tests. Its time moves only when `advance` or `set_time_ms` is called; `advance` also wakes the
    waiting threads."""

    def __init__(self, time_ms: int = 1_700_000_000_000, monotonic: float = 1000.0) -> None:
        self._lock = threading.Lock()
        self._start_ms = time_ms
        self._start = monotonic
        self._elapsed = 0.0
        self._shift_ms = 0
        self._waiting: dict[int, threading.Condition] = {}
        self._callbacks: list[Callable[[], None]] = []

    def time_ms(self) -> int:
        return self._start_ms + self._shift_ms + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._start + self._elapsed

    def advance(self, seconds: float) -> None:
        """Move the wall clock and the monotonic clock forward, wake all waiting threads and call the subscribed
        callbacks."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s; use set_time_ms for the wall clock")
        with self._lock:
            self._elapsed += seconds
            waiting = list(self._waiting.values())
            callbacks = list(self._callbacks)
        for condition in waiting:
            with condition:
                condition.notify_all()
        for callback in callbacks:
            callback()

    def set_time_ms(self, time_ms: int) -> None:
        """Set the wall clock only, forward or back, as an operator or NTP may do. The monotonic clock stays."""
        with self._lock:
            self._shift_ms += time_ms - self.time_ms()

    def wait_until(self, condition: threading.Condition, deadline: float | None) -> None:
        # A race with `advance`: `advance` first sets the time, then reads the list of waiting threads; this method
        # first registers, then reads the time. If this method registers in time, `advance` finds it, and its notify has
        # to wait for the condition, which the caller holds until `wait` releases it. Otherwise `advance` has set the
        # time already, and this method reads the new time.
        key = threading.get_ident()
        with self._lock:
            self._waiting[key] = condition
        try:
            if deadline is None or self.monotonic() < deadline:
                condition.wait()
        finally:
            with self._lock:
                self._waiting.pop(key, None)

    def subscribe(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks.append(callback)
