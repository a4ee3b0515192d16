"""Ctrl-C and SIGTERM as a wish to end, so that the work at hand is finished first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """The first of either sets the event; the next one interrupts as ever."""
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
