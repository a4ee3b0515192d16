"""Running many jobs on a few threads and waiting for all of them: loading and closing logs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable


def run_all(jobs: Iterable[Callable[[], object]], threads: int, name: str) -> None:
    """Runs every job, whatever the others do; then raises the first exception that there was.

    The calling thread is one of the `threads`; the others exist only while there is work for them.
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

    helpers = [
        threading.Thread(target=work, name=f"{name} {number}", daemon=True)
        for number in range(1, min(threads, len(waiting)))
    ]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
