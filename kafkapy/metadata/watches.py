"""Callbacks that are called when nodes of a metadata tree change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkapy.metadata.tree import Event

log = logging.getLogger("kafkapy.metadata.tree")

Callback = Callable[[Event], None]

_EVERY_PATH = ""


class Watches:
    """The callbacks of a metadata tree, by the path of the node that they watch. Any thread may add and remove
    callbacks. The tree's own thread calls them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_path: dict[str, tuple[Callback, ...]] = {}
        self._of_all: tuple[Callable[[Sequence[Event]], None], ...] = ()

    def add(self, path: str, callback: Callback) -> Callable[[], None]:
        """Add a callback for changes of the node at `path`, or of every node if `path` is empty. Return a function that
        removes the callback."""

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

    def add_for_all(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Add a callback that gets all events of each firing together. Return a function that removes the callback."""

        def cancel() -> None:
            with self._lock:
                self._of_all = tuple(other for other in self._of_all if other is not callback)

        with self._lock:
            self._of_all = (*self._of_all, callback)
        return cancel

    def fire(self, events: Iterable[Event]) -> None:
        """Call the callbacks for the path of each event, and the callbacks for every path, with the event. Then call
        the callbacks that get all events together."""
        events = list(events)
        for event in events:
            for callback in (*self._by_path.get(event.path, ()), *self._by_path.get(_EVERY_PATH, ())):
                call(callback, event)
        if events:
            for callback_of_all in self._of_all:
                call(callback_of_all, events)


def call(callback: Callable[..., Any], *arguments: Any) -> None:
    """Call a callback. Log an exception that it raises instead of passing the exception on, so that the other callbacks
    still run."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the metadata tree failed")
