"""Named threads, groups of threads, and NoThread, the error when the system cannot start another thread."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kafkapy._ext import syscalls

log = logging.getLogger(__name__)

_PREFIX = "kafkapy-"  # distinguishes our threads in the thread dump of a program that embeds the broker
_MAX_BYTES = 15  # the length of a thread name in Linux


class NoThread(RuntimeError):
    """The error when the system cannot start another thread for this process. The thread's work has not begun."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(
            f"the thread {name} cannot be started; {threading.active_count()} threads run ({reason}): raise the "
            "limit on threads (ulimit -u, or the container's pids) or on memory (ulimit -v, or the container's memory)"
        )


@contextmanager
def starting(name: str) -> Iterator[None]:
    """Context manager for a block that starts a thread: raise NoThread if the thread cannot be started. `name` is the
    thread's name in the message."""
    try:
        yield
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise NoThread(name, error) from error
    except MemoryError as error:
        raise NoThread(name, "out of memory") from error


def show_name(thread: threading.Thread) -> None:
    """Give a running thread the name that `top -H`, `ps -L` and perf show: its Python name without the prefix
    `kafkapy-`, at most 15 bytes.

    Threads started by this thread inherit the name. Python 3.14 does all this by itself. Failures, such as a read-only
    /proc or a thread that has ended, are ignored.
    """
    name = thread.name.removeprefix(_PREFIX).encode()[:_MAX_BYTES]
    try:
        fd = os.open(f"/proc/self/task/{thread.native_id}/comm", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, name)
        finally:
            os.close(fd)
    except OSError:
        pass


class Thread(threading.Thread):
    """A daemon thread whose name is also visible to system tools such as `top -H`.

    `start` raises NoThread; a thread that failed to start must not be joined.
    """

    def __init__(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)

    def start(self) -> None:
        with starting(self.name):
            super().start()

    def run(self) -> None:
        show_name(self)
        super().run()


class ThreadGroup:
    """The threads of a pool or a scheduler: at most `limit`, started one by one. Call its methods under one lock."""

    __slots__ = ("_is_short", "_name", "limit", "threads")

    def __init__(self, name: str, limit: int) -> None:
        """`name` begins the name of each thread; a number follows. `limit` is the largest number of threads."""
        self._name = name
        self.limit = limit
        self.threads: list[Thread] = []
        self._is_short = False  # the last attempt to start a thread failed, and that was logged

    def __len__(self) -> int:
        return len(self.threads)

    def start_one(self, target: Callable[[], object]) -> None:
        """Start one more thread, which runs `target`.

        If the thread cannot be started, raises NoThread if the group has no threads. Otherwise the existing threads do
        the work: this is logged once, until a thread can be started again.
        """
        running = len(self.threads)
        thread = Thread(target, f"{_PREFIX}{self._name}-{running}")
        try:
            thread.start()
        except NoThread as error:
            if not running:
                raise
            if not self._is_short:
                self._is_short = True
                log.warning("only %d of %d %s threads run: %s", running, self.limit, self._name, error)
            return
        self._is_short = False
        self.threads.append(thread)

    def join(self) -> None:
        """Wait until all threads of the group have ended, except the calling thread."""
        for thread in list(self.threads):
            if thread is not threading.current_thread():
                thread.join()


def run_all(jobs: Iterable[Callable[[], object]], threads: int, name: str) -> None:
    """Run every job on up to `threads` threads, even if other jobs fail. Then raise the first exception, if any job
    failed.

    The calling thread is one of the `threads`; the others exist only while there are jobs. If a thread cannot be
    started, the jobs run on fewer threads.
    """
    waiting = deque(jobs)
    errors: list[BaseException] = []

    def work() -> None:
        while True:
            try:
                job = waiting.popleft()
            except IndexError:
                return
            try:
                job()
            except BaseException as error:
                errors.append(error)

    def help_out() -> None:
        syscalls.this_thread_may_wait()
        work()

    helpers = []
    for number in range(1, min(threads, len(waiting))):
        helper = Thread(help_out, f"{name} {number}")
        try:
            helper.start()
        except NoThread as error:
            log.warning("%s continues with %d of %d threads: %s", name, number, threads, error)
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
