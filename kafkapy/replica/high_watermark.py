"""The acks=all appends of a partition, which wait for the high watermark to reach their offsets.

Source: Kafka's DelayedProduce, Partition.effectiveMinIsr and checkEnoughReplicasReachOffset.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.runtime.timer import Timer, TimerEntry

# Called once with None when the records are replicated, else with the error that the producer gets.
Replicated = Callable[["KafkaError | None"], object]


def effective_min_isr(min_insync_replicas: int, replicas: int) -> int:
    """Return the number of in-sync replicas that acks=all needs: min.insync.replicas, but at most the number of
    replicas.
    """
    return min(min_insync_replicas, replicas)


class ReplicationWaits:
    """The acks=all appends of one partition whose callbacks wait for the high watermark. No thread blocks for them."""

    __slots__ = ("_lock", "_timer", "pending")

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self.pending: list[_Wait] = []  # ascending by offset; read without the lock to see if there are any

    def add(self, offset: int, timeout_s: float, done: Replicated) -> None:
        """Call `done(None)` when the high watermark reaches `offset`; after `timeout_s` seconds, `done` with
        REQUEST_TIMED_OUT.

        The caller calls `advance` afterwards with the present high watermark: if the high watermark has moved just
        before this call, that change did not find this wait.
        """
        wait = _Wait(offset, done)
        with self._lock:
            insort(self.pending, wait, key=_offset)
        wait.entry = self._timer.schedule(timeout_s, lambda: self._time_out(wait))
        # After the lock was released, `advance` on another thread may have completed this wait before `entry` was set,
        # and so could not cancel the timer's entry.
        if wait.over:
            wait.entry.cancel()

    def advance(self, high_watermark: int, error: KafkaError | None) -> None:
        """Complete all appends that wait for an offset up to `high_watermark`, by calling their `done` with `error`.

        `error` is None, or the error to report because the ISR is too small by now.
        """
        with self._lock:
            count = bisect_right(self.pending, high_watermark, key=_offset)
            reached = self._take(count)
        _complete(reached, error)

    def end(self, error: KafkaError) -> None:
        """Complete all waiting appends with `error`, because this broker does not lead the partition any more."""
        with self._lock:
            ended = self._take(len(self.pending))
        _complete(ended, error)

    def _take(self, count: int) -> list[_Wait]:
        """Remove and return the first `count` waiting appends. Called under the lock."""
        taken, self.pending = self.pending[:count], self.pending[count:]
        for wait in taken:
            wait.over = True
        return taken

    def _time_out(self, wait: _Wait) -> None:
        with self._lock:
            if wait.over:
                return
            wait.over = True
            at = bisect_left(self.pending, wait.offset, key=_offset)
            while self.pending[at] is not wait:  # other appends may wait for the same offset
                at += 1
            del self.pending[at]
        wait.done(KafkaError(Errors.REQUEST_TIMED_OUT, f"not all in-sync replicas have offset {wait.offset - 1} yet"))


class _Wait:
    __slots__ = ("done", "entry", "offset", "over")

    def __init__(self, offset: int, done: Replicated) -> None:
        self.offset = offset
        self.done = done
        self.entry: TimerEntry | None = None
        self.over = False  # set under the lock by the thread that completes the wait


def _offset(wait: _Wait) -> int:
    return wait.offset


def _complete(waits: Iterable[_Wait], error: KafkaError | None) -> None:
    for wait in waits:
        if wait.entry is not None:
            wait.entry.cancel()
        wait.done(error)
