"""Thread pools for calls that may block on a disk: fsync, cold reads, creating and deleting files, index rebuilds.

A network thread never makes such calls; it submits them to a pool and gets the result by a callback. Calls may be
reordered, because several threads take them from one queue: a caller that needs an order submits the next call from the
callback of the previous one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from kafkapy._ext import syscalls
from kafkapy.runtime.threads import NoThread, ThreadGroup

log = logging.getLogger(__name__)

Done = Callable[[Any, "BaseException | None"], None]
_Job = tuple[Callable[..., Any], tuple[Any, ...], "Done | None"]


class PoolStopped(RuntimeError):
    """The error for a call submitted to a pool that has stopped."""


class DiskPool:
    """A pool of at most `threads` threads. A thread is started when a call arrives and no thread is idle.

    If no thread can be started then, the existing threads make the call, and the pool tries again when the next call
    arrives.
    """

    def __init__(self, threads: int, name: str = "disk") -> None:
        if threads < 1:
            raise ValueError(f"a disk pool needs at least one thread, not {threads}")
        self.name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = ThreadGroup(name, threads)
        self._depth = 0
        self._stopped = False

    @property
    def depth(self) -> int:
        """The number of submitted calls that are waiting or running."""
        return self._depth

    @property
    def threads(self) -> int:
        """The number of threads started so far."""
        return len(self._threads)

    def submit(self, fn: Callable[..., Any], *args: Any, done: Done | None = None) -> None:
        """Call `fn(*args)` on a pool thread, and then `done(result, None)` or `done(None, error)` on the same thread.

        Without `done`, an error is logged. Raises PoolStopped if the pool is stopped. Raises NoThread if memory is
        short, or if the pool has no thread and cannot start one. In these cases `fn` is not called.
        """
        with self._lock:
            if self._stopped:
                raise PoolStopped(f"the {self.name} pool is stopped and accepts no more calls")
            try:
                if self._depth >= len(self._threads) < self._threads.limit:
                    self._threads.start_one(self._run)
                self._queue.put((fn, args, done))
            except MemoryError as error:
                # The caller must know: an append queue would wait for a call that never comes.
                raise NoThread(f"kafkapy-{self.name}", "out of memory") from error
            self._depth += 1  # the call takes the lock when it ends

    def stop(self, wait: bool = True) -> None:
        """Stop the pool: later calls of `submit` raise PoolStopped. Calls submitted before still run; with `wait`, this
        method waits for them."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                for _ in range(len(self._threads)):
                    self._queue.put(None)
        if wait:
            self._threads.join()

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
            log.exception("the callback of a call in the %s pool failed: %s", self.name, fn)
        finally:
            failure = None  # the traceback refers to this frame: break the reference cycle
