"""Waits for changes by other threads or processes where there is no event to wait for."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T | None], *, seconds: float = 30, what: str | Callable[[], object] = "") -> T:
    """Call `condition` until it returns something that is true, and return that.

    Raise AssertionError after so many seconds. `what` is the message of the failure, or a function that returns it.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError((what() if callable(what) else what) or f"not within {seconds:.0f} s")
        time.sleep(0.01)
    return found
