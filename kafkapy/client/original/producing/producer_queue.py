"""The async producer's bounded queue, and the thread that takes messages from it and sends them in batches.

Source: kafka.producer.async.ProducerSendThread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kafkapy.client.original.producing.producer_hooks import CallbackHandler, guarded
from kafkapy.client.original.producing.producer_messages import KeyedMessage

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """A queue with room for `room` items.

    Several threads put items into it, and one thread takes many items at a time.
    """

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
        """True after `close`, when the queue takes no more items."""
        return self._closed

    def put(self, items: Sequence[T], timeout_s: float | None) -> int:
        """Put items into the queue in order, waiting for room. Return the number of items that were put.

        With `timeout_s` 0, put only as many items as there is room for now; with None, wait without limit. Stops when
        the queue is closed.
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
        """Wait for items and return up to `most` of them.

        Returns an empty list when `timeout_s` has passed, or when the queue is closed and empty.
        """
        with self._lock:
            if not self._items and not self._closed:
                self._has_items.wait_for(lambda: self._items or self._closed, timeout_s)
            taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._has_room.notify_all()
            return taken

    def close(self) -> None:
        """Take no more items from now on. Items already in the queue can still be taken out."""
        with self._lock:
            self._closed = True
            self._has_items.notify_all()
            self._has_room.notify_all()


class SendThread(threading.Thread):
    """A thread that takes messages from the queue and sends them in batches.

    A batch is sent when it has `batch_size` messages, or its first message has waited for `queue_time_s`. The thread
    ends when the queue is closed and empty. `send` must not raise.
    """

    def __init__(
        self,
        queue: BoundedQueue[KeyedMessage],
        send: Callable[[Sequence[KeyedMessage]], None],
        hooks: CallbackHandler | None,
        *,
        batch_size: int,
        queue_time_s: float,
    ) -> None:
        # A daemon thread, so that a program which does not close the producer can exit; atexit closes it then.
        super().__init__(name="ProducerSendThread", daemon=True)
        self._queue = queue
        self._send = send
        self._hooks = hooks
        self._batch_size = batch_size
        self._queue_time_s = queue_time_s

    def run(self) -> None:
        """Send batches until the queue is closed and empty."""
        batch: list[KeyedMessage] = []
        due: float | None = None
        while True:
            wait_s = None if due is None else max(0.0, due - time.monotonic())
            taken = self._queue.take(max(1, self._batch_size - len(batch)), wait_s)
            batch += self._dequeued(taken)
            if taken and due is None:
                due = time.monotonic() + self._queue_time_s
            # Test `closed` before the length: messages may have come after `take`, just before the queue was closed.
            over = not taken and self._queue.closed and not len(self._queue)
            expired = due is not None and time.monotonic() >= due
            if expired and self._hooks is not None:
                batch += guarded(self._hooks.after_dequeuing, (), None)
            if over and self._hooks is not None:
                batch += guarded(self._hooks.last_batch_before_close, ())
            if len(batch) >= self._batch_size or expired or over:
                if batch:
                    self._send(batch)
                batch, due = [], None
            if over:
                return

    def _dequeued(self, taken: list[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Return the messages that the hook `after_dequeuing` returns for the messages taken from the queue."""
        if self._hooks is None:
            return taken
        return [one for message in taken for one in guarded(self._hooks.after_dequeuing, (message,), message)]
