"""Who wants to know of which changes of a tree."""

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
    """Callbacks by the path that they watch. Added and removed from any thread, called from the tree's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_path: dict[str, tuple[Callback, ...]] = {}

    def add(self, path: str, callback: Callback) -> Callable[[], None]:
        """Until the result is called; the empty path stands for every path."""

        def cancel() -> None:
            with self._lock:
                left = tuple(one for one in self._by_path.get(path, ()) if one is not callback)
                if left:
                    self._by_path[path] = left
                else:
                    self._by_path.pop(path, None)

        with self._lock:
            self._by_path[path] = (*self._by_path.get(path, ()), callback)
        return cancel

    def fire(self, events: Iterable[Event]) -> None:
        """Tells each event to those who watch its path."""
        for event in events:
            for callback in (*self._by_path.get(event.path, ()), *self._by_path.get(_EVERY_PATH, ())):
                call(callback, event)


def call(callback: Callable[..., Any], *arguments: Any) -> None:
    """A callback that fails must not keep the others from theirs."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the metadata tree failed")
