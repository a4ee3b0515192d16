"""Threads for calls that can wait for a disk: fsync, cold reads, making files, deletion, index rebuilds.

A network thread never makes such a call; it submits it here and is told by a message. Order between
submissions is not kept (several threads take from one queue): whoever needs an order queues behind its own
last submission.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from kafkapy._ext import syscalls

log = logging.getLogger(__name__)

Done = Callable[[Any, "BaseException | None"], None]
_Job = tuple[Callable[..., Any], tuple[Any, ...], "Done | None"]


class DiskPool:
    """At most `threads` threads, each started when there is work and nobody idle to take it."""

    def __init__(self, threads: int, name: str = "disk") -> None:
        if threads < 1:
            raise ValueError(f"a disk pool needs at least one thread, not {threads}")
        self.name = name
        self._limit = threads
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._depth = 0
        self._stopped = False

    @property
    def depth(self) -> int:
        """How many calls wait or run."""
        return self._depth

    @property
    def threads(self) -> int:
        """How many threads have been started."""
        return len(self._threads)

    def submit(self, fn: Callable[..., Any], *args: Any, done: Done | None = None) -> None:
        """Runs `fn(*args)` on a pool thread, then there `done(result, None)` or `done(None, error)`.

        Without `done` an error is logged. Raises RuntimeError once the pool was stopped.
        """
        with self._lock:
            if self._stopped:
                raise RuntimeError(f"the {self.name} pool was stopped and takes no more work")
            self._depth += 1
            self._queue.put((fn, args, done))
            if self._depth > len(self._threads) < self._limit:
                thread = threading.Thread(
                    target=self._run, name=f"kafkapy-{self.name}-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def stop(self, wait: bool = True) -> None:
        """Takes no more work. What was submitted before still runs; `wait` waits for it."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                for _ in self._threads:
                    self._queue.put(None)
            threads = list(self._threads)
        if wait:
            for thread in threads:
                if thread is not threading.current_thread():
                    thread.join()

    def _run(self) -> None:
        syscalls.this_thread_may_wait()
        while True:
            job = self._queue.get()
            if job is None:
                return
            try:
                self._call(*job)
            finally:
                del job  # an idle thread must not keep the last call's buffers alive
                with self._lock:
                    self._depth -= 1

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], done: Done | None) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = fn(*args)
        except BaseException as error:
            failure = error
        try:
            if done is not None:
                done(result, failure)
            elif failure is not None:
                log.error("a call in the %s pool failed: %s", self.name, fn, exc_info=failure)
        except BaseException:
            log.exception("the completion of a call in the %s pool failed: %s", self.name, fn)
        finally:
            failure = None  # the traceback holds this frame: break the circle
