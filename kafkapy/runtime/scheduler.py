"""Runs named background tasks, such as retention, checkpoints and flushes, like Kafka's KafkaScheduler.

A task never runs twice at the same time. A periodic task that took longer than its period runs again at once, and the
runs it missed meanwhile are dropped.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from itertools import count

from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.threads import ThreadGroup

log = logging.getLogger(__name__)

_RETRY_S = 1.0  # the pause after a lack of memory


class Task:
    """A scheduled call of a function. `cancel` prevents further runs; a run in progress is not interrupted."""

    __slots__ = ("cancelled", "fn", "name", "period_s")

    def __init__(self, name: str, fn: Callable[[], object], period_s: float | None) -> None:
        self.name = name
        self.fn: Callable[[], object] | None = fn
        self.period_s = period_s
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.fn = None


class Scheduler:
    """Runs tasks at their times on up to `threads` threads.

    A thread is started if none is free when a task is added, or when the only free thread begins a task and there are
    others to wait for. If no thread can be started then, the existing threads run the tasks, and the scheduler tries
    again when the next task is added or begun.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, threads: int = 1, name: str = "scheduler") -> None:
        if threads < 1:
            raise ValueError(f"a scheduler needs at least one thread, not {threads}")
        self._clock = clock
        self._condition = threading.Condition(threading.Lock())
        self._heap: list[tuple[float, int, Task]] = []
        self._order = count()
        self._threads = ThreadGroup(name, threads)
        self._free = 0  # idle threads
        self._stopped = False

    def schedule(
        self, name: str, fn: Callable[[], object], delay_s: float = 0.0, period_s: float | None = None
    ) -> Task:
        """Call `fn()` after `delay_s` seconds, and then every `period_s` seconds if given.

        Exceptions are logged with the task's name and do not end a periodic task. After `stop` nothing runs. Raises
        NoThread if there is no thread and none can be started.
        """
        task = Task(name, fn, period_s)
        with self._condition:
            if self._stopped:
                task.cancel()
                return task
            if not self._free and len(self._threads) < self._threads.limit:
                self._threads.start_one(self._run)
            heapq.heappush(self._heap, (self._clock.monotonic() + delay_s, next(self._order), task))
            self._condition.notify()
        return task

    def stop(self, wait: bool = True) -> None:
        """Stop the scheduler and discard the tasks that have not begun. With `wait`, this method waits for running
        tasks."""
        with self._condition:
            self._stopped = True
            self._heap.clear()
            self._condition.notify_all()
        if wait:
            self._threads.join()

    @property
    def pending(self) -> int:
        """The number of tasks that wait for their next run."""
        with self._condition:
            return sum(not task.cancelled for _, _, task in self._heap)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            due, task = item
            self._call(task)
            self._reschedule(due, task)

    def _next(self) -> tuple[float, Task] | None:
        with self._condition:
            self._free += 1
            try:
                while not self._stopped:
                    while self._heap and self._heap[0][2].cancelled:
                        heapq.heappop(self._heap)
                    due = self._heap[0][0] if self._heap else None
                    if due is not None and due <= self._clock.monotonic():
                        if self._free == 1 and len(self._heap) > 1:  # no other thread waits for the other tasks
                            self._start_another()
                        _, _, task = heapq.heappop(self._heap)
                        if self._heap:
                            self._condition.notify()  # another thread may be waiting for the next task
                        return due, task
                    self._clock.wait_until(self._condition, due)
                return None
            finally:
                self._free -= 1

    def _start_another(self) -> None:
        if len(self._threads) < self._threads.limit:
            try:
                self._threads.start_one(self._run)
            except MemoryError:  # the other tasks wait for this thread, which must not end
                pass

    def _call(self, task: Task) -> None:
        fn = task.fn
        if fn is None:
            return
        try:
            fn()
        except Exception:
            log.exception("the background task %s failed", task.name)

    def _reschedule(self, due: float, task: Task) -> None:
        if task.period_s is None:
            return
        with self._condition:
            while not task.cancelled and not self._stopped:
                try:
                    next_due = max(due + task.period_s, self._clock.monotonic())
                    heapq.heappush(self._heap, (next_due, next(self._order), task))
                    self._condition.notify()
                    return
                except MemoryError:  # the task must not be lost, nor this thread, which would not be replaced
                    self._clock.wait_until(self._condition, self._clock.monotonic() + _RETRY_S)
