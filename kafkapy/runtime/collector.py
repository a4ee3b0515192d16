"""Shortens the pauses in which a broker's process frees memory: those of Python's garbage collector, and others.

A collection stops all threads: 7,000 objects of a first-generation collection take 0.4 ms, 70,000 of the second
generation 4 ms, and a full one of a broker with 10,000 partitions 120 ms. Objects made for a request are freed by their
reference counts when the request is answered (tests/server/test_no_reference_cycles.py), and those of topics and
partitions live long. So collections are rare, and look at few objects: large requests of the controller are handled in
`paused`, and `long_lived` excludes the objects of partitions from later collections.

Nothing here changes the collector before `configure` was called: in a user's process, the user decides about it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")

_THRESHOLDS = 7_000, 10, 50
_AT_ONCE = 500  # partitions, which are up to 50,000 objects: fewer than make a second-generation collection

_lock = threading.Lock()
_is_configured = False
_pauses = 0
_partitions = 0


def configure() -> None:
    """Exclude all present objects, mostly those of imported modules, from garbage collection; then begin to collect,
    but rarely. Called once, when the broker has started.
    """
    global _is_configured
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
    _is_configured = True


@contextmanager
def paused() -> Iterator[None]:
    """Collect nothing in this block, which makes many objects that live until it ends. Blocks may overlap."""
    global _pauses
    if not _is_configured:
        yield
        return
    with _lock:
        _pauses += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses:
                gc.enable()


def long_lived(partitions: int) -> None:
    """Note that objects for so many partitions were made. Exclude them, and all other present objects, from garbage
    collection from time to time.

    They are still freed by their reference counts. Only reference cycles that exist at that moment are never freed:
    they are few, and a broker does this once for hundreds of partitions.
    """
    global _partitions
    if not _is_configured:
        return
    with _lock:
        _partitions += partitions
        freeze = _partitions >= _AT_ONCE
        if freeze:
            _partitions = 0
    if freeze:
        gc.freeze()


def drained(items: list[_T]) -> Iterator[_T]:
    """Yield the items of a list in order, and take each out of the list.

    A list of ten thousand structs that is freed at once holds the GIL for a millisecond.
    """
    items.reverse()
    while items:
        yield items.pop()
