"""Turns the registries' callbacks into calls that wait, for threads that may (the disk pool, the start)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def wait_for(submit: Callable[[Callable[..., None]], None]) -> Any:
    """Calls `submit(done)` and waits for `done(error)` or `done(result, error)`: the result, or the error raised."""
    finished = threading.Event()
    outcome: list[Any] = []

    def done(*results: Any) -> None:
        outcome.extend(results)
        finished.set()

    submit(done)
    finished.wait()
    error = outcome[-1]
    if error is not None:
        raise error
    return outcome[0] if len(outcome) > 1 else None
