"""Queues of items that this broker sends to other brokers, with one request in flight to each broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class RequestQueues(Generic[T]):
    """A queue of items for each broker. While a request to a broker is in flight, new items for the broker wait; its
    next request has all of them. Any thread may call `add`."""

    def __init__(self, send: Callable[[int, list[T], Callable[[], None]], object]) -> None:
        """`send(broker_id, items, done)` sends a request with the items, on the thread that calls `add` or the last
        `done`. It calls `done()` once, when the request is answered or has failed."""
        self._send = send
        self._lock = threading.Lock()
        self._waiting: dict[int, list[T]] = {}  # by broker id; only brokers with a request in flight have an entry

    def add(self, broker_id: int, item: T) -> None:
        """Send the item to the broker now, or in its next request."""
        with self._lock:
            waiting = self._waiting.get(broker_id)
            if waiting is not None:
                waiting.append(item)
                return
            self._waiting[broker_id] = []
        self._send(broker_id, [item], lambda: self._next(broker_id))

    def _next(self, broker_id: int) -> None:
        with self._lock:
            items = self._waiting.pop(broker_id)
            if not items:
                return
            self._waiting[broker_id] = []
        self._send(broker_id, items, lambda: self._next(broker_id))
