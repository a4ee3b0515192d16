"""A system that starts only so many threads more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ThreadLimit:
    """`left` threads may be started; then Python raises what it raises when the system refuses one."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.refused = 0


@contextmanager
def thread_limit(left: int = 0) -> Iterator[ThreadLimit]:
    """While it lasts this process cannot start more than `left` threads."""
    limit = ThreadLimit(left)
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if limit.left <= 0:
            limit.refused += 1
            raise RuntimeError("can't start new thread")
        limit.left -= 1
        start(thread)

    threading.Thread.start = limited  # type: ignore[method-assign]
    try:
        yield limit
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
