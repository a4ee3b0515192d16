"""Run many jobs on a few threads and wait for all of them; used for closing logs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from kafkapy.runtime.threads import NoThread, Thread

_log = logging.getLogger(__name__)


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
            _log.warning("%s continues with %d of %d threads: %s", name, number, threads, error)
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
