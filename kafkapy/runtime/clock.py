"""The clock that is handed to everything that tells time or waits, so that tests need no sleeping.

`time_ms` is the wall clock (record timestamps, retention); `monotonic` never goes back (time-outs).
Code that waits with a deadline calls `wait_until` with its condition; code that waits in some other way
(an epoll, for instance) subscribes a wake-up, which the system clock never calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting for a time."""

    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def wait_until(self, condition: threading.Condition, deadline: float | None) -> None:
        """Waits on `condition` (held by the caller) until it is notified or `monotonic()` reaches `deadline`.

        May also return earlier without a reason, as Condition.wait may: callers look again.
        """
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever the time is moved by hand (never, on the system clock)."""
        ...


class SystemClock:
    """The time of the machine."""

    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait_until(self, condition: threading.Condition, deadline: float | None) -> None:
        if deadline is None:
            condition.wait()
            return
        timeout = deadline - time.monotonic()
        if timeout > 0:
            # The C library's waits overflow beyond some hundred years; a day is long enough to look again.
            condition.wait(min(timeout, 86_400.0))

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Nobody moves this clock by hand."""


SYSTEM_CLOCK: Clock = SystemClock()


class ManualClock:
    """A clock that moves only when told: `advance` wakes whoever waits for the new time."""

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
        """Moves both clocks forward and wakes everyone who waits."""
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
        """Moves the wall clock alone, forward or back, as an operator or NTP does."""
        with self._lock:
            self._shift_ms += time_ms - self.time_ms()

    def wait_until(self, condition: threading.Condition, deadline: float | None) -> None:
        # `advance` sets the time, then looks who waits; we register, then look at the time. Whichever comes
        # first, either advance finds us (and its notify needs the condition, which we hold until wait lets
        # it go) or we find the new time.
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
