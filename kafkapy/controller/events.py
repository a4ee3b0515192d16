"""The controller's thread, and its queue of events. Source: kafka.controller.ControllerEventManager."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from kafkapy.controller.interface import not_controller
from kafkapy.runtime.counters import Histogram
from kafkapy.runtime.threads import Thread

log = logging.getLogger("kafkapy.controller.events")

_T = TypeVar("_T")


class EventQueue:
    """Runs functions on one thread, in the order in which they were submitted. The thread starts with the first one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._events: deque[_Event] = deque()
        self._thread: Thread | None = None
        self._stopped = False
        self.waited = Histogram()  # how long events waited for the thread

    def __len__(self) -> int:
        return len(self._events)

    def post(self, fn: Callable[[], object]) -> None:
        """Have `fn` run on the controller's thread. Errors are logged. Does nothing after `stop`."""
        self._submit(_Event(partial(_logged, fn)))

    def run(self, fn: Callable[[], _T]) -> _T:
        """Run `fn` on the controller's thread, and return its result or raise its exception. Blocks.

        Raises KafkaError NOT_CONTROLLER if the queue is stopped, or `drop` was called before `fn` began.
        """
        if threading.current_thread() is self._thread:
            return fn()
        event = _Event(fn)
        self._submit(event)
        event.finished.wait()
        error, event.error = event.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame, which would be a reference cycle
        return event.result  # type: ignore[return-value]

    def drop(self) -> None:
        """Drop the events that wait, because the controller's term is over. Calls of `run` fail."""
        with self._condition:
            dropped, self._events = list(self._events), deque()
        for event in dropped:
            event.refuse()

    def stop(self) -> None:
        """Drop the events that wait, and stop when the present one ends."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
            thread = self._thread
        self.drop()
        if thread is not None and threading.current_thread() is not thread:
            thread.join()

    def _submit(self, event: _Event) -> None:
        with self._condition:
            if not self._stopped:
                if self._thread is None:
                    thread = Thread(self._run, "controller")
                    thread.start()
                    self._thread = thread
                self._events.append(event)
                self._condition.notify()
                return
        event.refuse()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._events and not self._stopped:
                    self._condition.wait()
                if not self._events:
                    return
                event = self._events.popleft()
            self.waited.observe(time.monotonic() - event.submitted_at)
            event.run()


def _logged(fn: Callable[[], object]) -> None:
    try:
        fn()
    except Exception:
        log.exception("an event of the controller failed")


class _Event:
    def __init__(self, fn: Callable[[], object]) -> None:
        self._fn = fn
        self.submitted_at = time.monotonic()
        self.finished = threading.Event()
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._fn()
        except Exception as error:
            self.error = error
        finally:
            self.finished.set()

    def refuse(self) -> None:
        self.error = not_controller()
        self.finished.set()
