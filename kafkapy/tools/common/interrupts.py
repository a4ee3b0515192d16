"""Ctrl-C and SIGTERM as a request to stop, so that a command finishes the current step first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """Context manager that yields an event, which the first SIGINT or SIGTERM sets. The second signal has its usual
    effect.

    Outside the main thread, signals do not set the event.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def once(number: int, frame: object) -> None:
        interrupted.set()
        for one, handler in before.items():
            signal.signal(one, handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, once)
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
