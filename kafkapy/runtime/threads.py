"""Named threads, a few of them for many jobs, and the error raised when the system cannot start another thread."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

_PREFIX = "kafkapy-"  # distinguishes our threads in the thread dump of a program that embeds the broker
_MAX_BYTES = 15  # the length of a thread name in Linux


class NoThread(RuntimeError):
    """The system cannot start another thread for this process. The work of the thread has not begun."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(
            f"the thread {name} cannot be started; {threading.active_count()} threads run ({reason}): raise the "
            "limit on threads (ulimit -u, or the container's pids) or on memory (ulimit -v, or the container's memory)"
        )


@contextmanager
def starting(name: str) -> Iterator[None]:
    """Raise NoThread if the block fails to start a thread; `name` names the thread in the message."""
    try:
        yield
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise NoThread(name, error) from error
    except MemoryError as error:
        raise NoThread(name, "out of memory") from error


def show_name(thread: threading.Thread) -> None:
    """Set the name of a running thread that `top -H`, `ps -L` and perf show: 15 bytes, without the prefix `kafkapy-`.

    Threads started by it inherit the name. Python 3.14 does this by itself. Failures, such as a read-only /proc or a
    thread that has ended, are ignored.
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
    """A daemon thread whose name is also visible to system tools.

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
        """`name` is the name of each thread, before its number."""
        self._name = name
        self.limit = limit
        self.threads: list[Thread] = []
        self._is_short = False  # the last attempt to start a thread failed, and that was logged

    def __len__(self) -> int:
        return len(self.threads)

    def start_one(self, target: Callable[[], object]) -> None:
        """Start one more thread, which runs `target`. Raises NoThread if there is none and none can be started.

        If others run, they do its work: that is logged once, until a thread starts again.
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
        """Wait for the end of all threads but the one that calls this."""
        for thread in list(self.threads):
            if thread is not threading.current_thread():
                thread.join()


def run_all(jobs: Iterable[Callable[[], object]], threads: int, name: str) -> None:
    """Run every job, even if others fail, and then raise the first exception if there was one.

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

    helpers = []
    for number in range(1, min(threads, len(waiting))):
        helper = Thread(work, f"{name} {number}")
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
