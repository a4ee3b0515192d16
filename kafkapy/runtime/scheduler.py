"""Background tasks by name: retention, checkpoints, flushes. As Kafka's KafkaScheduler (background.threads).

A task never runs twice at the same time. A periodic task that took longer than its period runs again at
once, but runs that were missed are not made up for.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from itertools import count

from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)


class Task:
    """A scheduled call. `cancel` keeps it from running again; a run in progress goes on to its end."""

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
    """Runs tasks at their times on `threads` threads; threads are started by the first task."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, threads: int = 1, name: str = "scheduler") -> None:
        if threads < 1:
            raise ValueError(f"a scheduler needs at least one thread, not {threads}")
        self._clock = clock
        self._name = name
        self._limit = threads
        self._condition = threading.Condition(threading.Lock())
        self._heap: list[tuple[float, int, Task]] = []
        self._order = count()
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads that wait for a task's time
        self._stopped = False

    def schedule(
        self, name: str, fn: Callable[[], object], delay_s: float = 0.0, period_s: float | None = None
    ) -> Task:
        """Calls `fn()` after `delay_s` seconds, and then every `period_s` seconds if that is given.

        An exception is logged with the task's name, and a periodic task goes on. After `stop` nothing is run.
        """
        task = Task(name, fn, period_s)
        with self._condition:
            if self._stopped:
                task.cancel()
                return task
            heapq.heappush(self._heap, (self._clock.monotonic() + delay_s, next(self._order), task))
            if not self._free and len(self._threads) < self._limit:
                thread = threading.Thread(
                    target=self._run, name=f"kafkapy-{self._name}-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._condition.notify()
        return task

    def stop(self, wait: bool = True) -> None:
        """Drops what has not begun; `wait` waits for the tasks that are running."""
        with self._condition:
            self._stopped = True
            self._heap.clear()
            self._condition.notify_all()
            threads = list(self._threads)
        if wait:
            for thread in threads:
                if thread is not threading.current_thread():
                    thread.join()

    @property
    def pending(self) -> int:
        """How many tasks wait for their time."""
        with self._condition:
            return sum(not task.cancelled for _, _, task in self._heap)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            due, task = item
            self._call(task)
            self._again(due, task)

    def _next(self) -> tuple[float, Task] | None:
        with self._condition:
            self._free += 1
            try:
                while not self._stopped:
                    while self._heap and self._heap[0][2].cancelled:
                        heapq.heappop(self._heap)
                    due = self._heap[0][0] if self._heap else None
                    if due is not None and due <= self._clock.monotonic():
                        _, _, task = heapq.heappop(self._heap)
                        if self._heap:
                            self._condition.notify()  # another thread may wait for the next one
                        return due, task
                    self._clock.wait_until(self._condition, due)
                return None
            finally:
                self._free -= 1

    def _call(self, task: Task) -> None:
        fn = task.fn
        if fn is None:
            return
        try:
            fn()
        except Exception:
            log.exception("the background task %s failed", task.name)

    def _again(self, due: float, task: Task) -> None:
        if task.period_s is None:
            return
        with self._condition:
            if not task.cancelled and not self._stopped:
                due = max(due + task.period_s, self._clock.monotonic())
                heapq.heappush(self._heap, (due, next(self._order), task))
                self._condition.notify()
