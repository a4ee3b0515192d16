"""Callbacks for changes of a tree's nodes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafkapy.metadata.tree import Event

log = logging.getLogger("kafkapy.metadata.tree")

Callback = Callable[[Event], None]

_EVERY_PATH = ""


class Watches:
    """Callbacks by the path that they watch. Any thread adds and removes them; the tree's thread calls them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_path: dict[str, tuple[Callback, ...]] = {}

    def add(self, path: str, callback: Callback) -> Callable[[], None]:
        """Add a callback for a path, or for every path if it is empty. Return a function that removes the callback."""

        def cancel() -> None:
            with self._lock:
                left = tuple(other for other in self._by_path.get(path, ()) if other is not callback)
                if left:
                    self._by_path[path] = left
                else:
                    self._by_path.pop(path, None)

        with self._lock:
            self._by_path[path] = (*self._by_path.get(path, ()), callback)
        return cancel

    def fire(self, events: Iterable[Event]) -> None:
        """Call the callbacks of each event's path."""
        for event in events:
            for callback in (*self._by_path.get(event.path, ()), *self._by_path.get(_EVERY_PATH, ())):
                call(callback, event)


def call(callback: Callable[..., Any], *arguments: Any) -> None:
    """Call a callback and log any exception, so that the other callbacks still run."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the metadata tree failed")
