"""Makes this process able to start only a limited number of further threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ThreadLimit:
    """Allows `left` more threads. Then a start raises the same error as when the system refuses a thread."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.refused = 0


@contextmanager
def thread_limit(left: int = 0) -> Iterator[ThreadLimit]:
    """Limit this process to `left` more threads while the block runs."""
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
