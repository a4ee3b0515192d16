"""Keeps several requests to ZooKeeper in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")


def pipelined(items: Iterable[_T], send: Callable[[_T], Any], window: int) -> Iterator[tuple[_T, Any]]:
    """Yield each item with the result of `send(item)`. Up to `window` items are sent before the first result is
    yielded, so that several requests are in flight."""
    sent: deque[tuple[_T, Any]] = deque()
    for item in items:
        sent.append((item, send(item)))
        if len(sent) >= window:
            yield sent.popleft()
    yield from sent
