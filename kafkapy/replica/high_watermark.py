"""The acks=all appends of a partition, which wait for the high watermark to reach their offsets.

Source: Kafka's DelayedProduce, Partition.effectiveMinIsr and checkEnoughReplicasReachOffset.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.timer import Timer, TimerEntry

# Called once with None when the records are replicated, else with the error that the producer gets.
Replicated = Callable[["KafkaError | None"], object]


def effective_min_isr(min_insync_replicas: int, replicas: int) -> int:
    """Return the number of in-sync replicas that acks=all needs: min.insync.replicas, but at most the number of
    replicas.
    """
    return min(min_insync_replicas, replicas)


class ReplicationWaits:
    """The acks=all appends of one partition whose callbacks wait for the high watermark. No thread blocks for them.

    The timer has one entry for all of them: nearly every wait ends long before its time-out.
    """

    __slots__ = ("_clock", "_due", "_entry", "_lock", "_timer", "pending")

    def __init__(self, timer: Timer, clock: Clock) -> None:
        self._timer = timer
        self._clock = clock
        self._lock = threading.Lock()
        self._entry: TimerEntry | None = None
        self._due = float("inf")  # when `_entry` calls `_time_out`
        self.pending: list[_Wait] = []  # ascending by offset; read without the lock to see if there are any

    def add(self, offset: int, timeout_s: float, done: Replicated) -> None:
        """Call `done(None)` when the high watermark reaches `offset`; after `timeout_s` seconds, `done` with
        REQUEST_TIMED_OUT.

        The caller calls `advance` afterwards with the present high watermark: if the high watermark has moved just
        before this call, that change did not find this wait.
        """
        deadline = self._clock.monotonic() + timeout_s
        with self._lock:
            insort(self.pending, _Wait(offset, deadline, done), key=_offset)
            if deadline < self._due:
                self._call_at(deadline)

    def advance(self, high_watermark: int, error: KafkaError | None) -> None:
        """Complete all appends that wait for an offset up to `high_watermark`, by calling their `done` with `error`.

        `error` is None, or the error to report because the ISR is too small by now.
        """
        with self._lock:
            count = bisect_right(self.pending, high_watermark, key=_offset)
            reached, self.pending = self.pending[:count], self.pending[count:]
        for wait in reached:
            wait.done(error)

    def end(self, error: KafkaError) -> None:
        """Complete all waiting appends with `error`, because this broker does not lead the partition any more."""
        with self._lock:
            ended, self.pending = self.pending, []
        for wait in ended:
            wait.done(error)

    def _call_at(self, deadline: float) -> None:
        """Have the timer call `_time_out` at `deadline`, and only then. Called under the lock."""
        if self._entry is not None:
            self._entry.cancel()
        self._due = deadline
        self._entry = self._timer.schedule(deadline - self._clock.monotonic(), self._time_out)

    def _time_out(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            late = [wait for wait in self.pending if wait.deadline <= now]
            self.pending = [wait for wait in self.pending if wait.deadline > now]
            if self.pending:
                self._call_at(min(wait.deadline for wait in self.pending))
            else:
                self._entry, self._due = None, float("inf")
        for wait in late:
            wait.done(
                KafkaError(Errors.REQUEST_TIMED_OUT, f"not all in-sync replicas have offset {wait.offset - 1} yet")
            )


class _Wait(NamedTuple):
    offset: int
    deadline: float  # monotonic seconds
    done: Replicated


_offset = attrgetter("offset")
