"""The bounded queue between the threads that call `send` and the background thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """A queue for several threads that put items and one that takes them, many at a time."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._has_items = threading.Condition(self._lock)
        self._has_room = threading.Condition(self._lock)
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """True if the queue takes no more items."""
        return self._closed

    def put(self, items: Sequence[T], timeout_s: float | None) -> int:
        """Put items into the queue in order, waiting for room. Return how many were put.

        `timeout_s` 0: only as many as there is room for now; None: no limit. Stops when the queue is closed.
        """
        done = 0
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while not self._closed:
                room = self.room - len(self._items)
                if room > 0:
                    self._items.extend(items if room >= len(items) - done and not done else items[done : done + room])
                    done = min(len(items), done + room)
                    self._has_items.notify()
                if done == len(items):
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._has_room.wait(left)
        return done

    def take(self, most: int, timeout_s: float | None) -> list[T]:
        """Wait for items and return up to `most`. Empty when the time is up, or the queue is closed and empty."""
        with self._lock:
            if not self._items and not self._closed:
                self._has_items.wait_for(lambda: self._items or self._closed, timeout_s)
            taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._has_room.notify_all()
            return taken

    def close(self) -> None:
        """Refuse items from now on. Items in the queue can still be taken."""
        with self._lock:
            self._closed = True
            self._has_items.notify_all()
            self._has_room.notify_all()
