"""A lock for rearranging the segments of a log, which operations that cannot wait take from those that can.

Cleaning and retention run again later, so they only try to get the lock and skip the log if another thread holds it. A
truncation or the deletion of the log cannot be skipped: it asks the cleaning in progress to stop, waits until the lock
is free, and takes it. Kafka has this as states of its cleaner manager: LogCleaningInProgress, LogCleaningAborted,
LogCleaningPaused.

Lock order: the upkeep before a log's flush lock and lock. Appends and rolls at the log's end do not need the upkeep.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkapy.runtime.clock import Clock


class Interrupted(Exception):
    """Raised when another operation needs the log: leave the log unchanged, and release its upkeep."""


class Upkeep:
    """The upkeep lock of one log."""

    __slots__ = ("_condition", "_holder", "_wanted")

    def __init__(self, condition: threading.Condition | None = None) -> None:
        """`condition`: shared by many logs, because waiting is rare. Each log waits only for its own state."""
        self._condition = condition if condition is not None else threading.Condition(threading.Lock())
        self._holder: int | None = None  # the thread that holds the upkeep
        self._wanted = 0  # how many threads are in, or wait for, `interrupting`

    def try_begin(self) -> bool:
        """Take the upkeep, until `end`. Return False if another thread holds it or waits for it."""
        with self._condition:
            if self._holder is not None or self._wanted:
                return False
            self._holder = threading.get_ident()
            return True

    def end(self) -> None:
        """Release the upkeep."""
        with self._condition:
            self._holder = None
            self._condition.notify_all()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Interrupt the holder, wait until it has released the upkeep, and hold the upkeep while the block runs.

        If this thread is the holder already, the block runs at once and the upkeep stays held afterwards.
        """
        me = threading.get_ident()
        with self._condition:
            nested = self._holder == me
            if not nested:
                self._wanted += 1
                self._condition.notify_all()
                while self._holder is not None:
                    self._condition.wait()
                self._holder = me
        try:
            yield
        finally:
            if not nested:
                with self._condition:
                    self._wanted -= 1
                    self._holder = None
                    self._condition.notify_all()

    def check(self) -> None:
        """Raise Interrupted if another thread needs the log. Called by the holder."""
        if self._wanted:
            raise Interrupted

    def pause(self, clock: Clock, seconds: float, stopped: Callable[[], bool]) -> None:
        """Wait for `seconds`, but return when another thread needs the log or `stopped` is true. Called by the
        holder.
        """
        deadline = clock.monotonic() + seconds
        with self._condition:
            while not self._wanted and not stopped() and clock.monotonic() < deadline:
                clock.wait_until(self._condition, deadline)

    def wake(self) -> None:
        """Make `pause` check `stopped` again."""
        with self._condition:
            self._condition.notify_all()
