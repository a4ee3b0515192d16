"""A lock for operations that rearrange the segments of a log. Urgent operations interrupt the current holder.

Cleaning and retention run again later, so they only try to get the lock and skip the log if another thread holds it. A
truncation or the deletion of the log cannot be skipped: it asks the cleaning in progress to stop, waits until the lock
is free, and takes it. Kafka has this as states of its cleaner manager: LogCleaningInProgress, LogCleaningAborted,
LogCleaningPaused.

Lock order: Upkeep, the log's flush lock, the log's lock. Appends and rolls at the log's end do not need Upkeep.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkapy.runtime.clock import Clock


class Interrupted(Exception):
    """Raised to make the current holder of a log's Upkeep lock stop, leave the log unchanged, and release the lock."""


class Upkeep:
    """The lock of one log for operations that rearrange its segments: cleaning, retention, truncation and deletion."""

    __slots__ = ("_condition", "_holder", "_wanted")

    def __init__(self, condition: threading.Condition | None = None) -> None:
        """`condition` may be shared by many logs, because waiting is rare. Each log waits only for its own lock."""
        self._condition = condition if condition is not None else threading.Condition(threading.Lock())
        self._holder: int | None = None  # the id of the thread that holds the lock
        self._wanted = 0  # number of threads that wait or run in `interrupting`

    def try_begin(self) -> bool:
        """Take the lock, until `end`. Return False if another thread holds the lock or waits for it."""
        with self._condition:
            if self._holder is not None or self._wanted:
                return False
            self._holder = threading.get_ident()
            return True

    def end(self) -> None:
        """Release the lock that `try_begin` has taken."""
        with self._condition:
            self._holder = None
            self._condition.notify_all()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Ask the holder to stop, wait until the lock is free, and hold the lock while the `with` block runs.

        If this thread is the holder already, the block runs at once, and the lock stays held afterwards.
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
        """Raise Interrupted if another thread waits for the lock in `interrupting`. The holder calls this regularly."""
        if self._wanted:
            raise Interrupted

    def pause(self, clock: Clock, seconds: float, stopped: Callable[[], bool]) -> None:
        """Wait for `seconds`, or until another thread asks the holder to stop or `stopped` returns True.

        Called by the holder.
        """
        deadline = clock.monotonic() + seconds
        with self._condition:
            while not self._wanted and not stopped() and clock.monotonic() < deadline:
                clock.wait_until(self._condition, deadline)

    def wake(self) -> None:
        """Make a thread that waits in `pause` call `stopped` again."""
        with self._condition:
            self._condition.notify_all()
