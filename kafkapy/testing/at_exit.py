"""Ends the processes that brokers and clusters have started, and removes their directories, when this process exits
normally without a `stop`. A process that was forked from this one ends nothing at its exit.
"""

import atexit
import os
from collections.abc import Callable
from contextlib import ExitStack

Ending = Callable[[], object]

_registered: dict[Ending, int] = {}  # with the process that has registered it


def register(ending: Ending) -> None:
    """Have `ending` called when this process exits; those that are registered last are called first."""
    _registered[ending] = os.getpid()


def unregister(ending: Ending) -> None:
    """Do not call `ending` any more; do nothing if it is not registered."""
    _registered.pop(ending, None)


@atexit.register
def _end() -> None:
    with ExitStack() as endings:  # calls all of them, also if some raise errors
        for ending, pid in _registered.items():
            if pid == os.getpid():
                endings.callback(ending)
