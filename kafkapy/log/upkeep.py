"""Who may rearrange the segments of a log: one at a time, and what must not wait interrupts what can.

Cleaning and retention come again later: they only try, and leave the log alone while another is at it. A truncation
or the log's deletion cannot: it asks the cleaning in progress to stop, waits until it has, and holds the place.
(Kafka has this as states of its cleaner manager: LogCleaningInProgress, LogCleaningAborted, LogCleaningPaused.)

Lock order: the upkeep before a log's flush lock and lock. Appends and rolls at the log's end do not take part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkapy.runtime.clock import Clock


class Interrupted(Exception):
    """The log is wanted for something that cannot wait: leave it as it is, and let it go."""


class Upkeep:
    """One a log."""

    __slots__ = ("_condition", "_holder", "_wanted")

    def __init__(self, condition: threading.Condition | None = None) -> None:
        """`condition`: one for all logs, each of which waits for its own; they hardly ever wait at all."""
        self._condition = condition if condition is not None else threading.Condition(threading.Lock())
        self._holder: int | None = None  # the thread that holds it
        self._wanted = 0  # how many threads are in, or wait for, `interrupting`

    def try_begin(self) -> bool:
        """Whether the log is ours now, until `end`."""
        with self._condition:
            if self._holder is not None or self._wanted:
                return False
            self._holder = threading.get_ident()
            return True

    def end(self) -> None:
        with self._condition:
            self._holder = None
            self._condition.notify_all()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Holds the log as soon as who is at it has noticed that it is wanted; at once if that is this thread."""
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
        """For who holds it: raises Interrupted if it is wanted."""
        if self._wanted:
            raise Interrupted

    def pause(self, clock: Clock, seconds: float, stopped: Callable[[], bool]) -> None:
        """For who holds it: waits, but not on when it is wanted or `stopped`."""
        deadline = clock.monotonic() + seconds
        with self._condition:
            while not self._wanted and not stopped() and clock.monotonic() < deadline:
                clock.wait_until(self._condition, deadline)

    def wake(self) -> None:
        """Lets `pause` look at `stopped` again."""
        with self._condition:
            self._condition.notify_all()
