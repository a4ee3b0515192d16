"""The thread of the async producer, which takes messages from the queue and sends them in batches.

Source: kafka.producer.async.ProducerSendThread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from kafkapy.client.original.producing.producer_hooks import CallbackHandler, guarded
from kafkapy.client.original.producing.producer_messages import KeyedMessage
from kafkapy.client.original.producing.producer_queue import BoundedQueue


class SendThread(threading.Thread):
    """Sends a batch when it has `batch_size` messages, or its first message has waited for `queue_time_s`.

    Ends when the queue is closed and empty. `send` must not raise.
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
        """Run the thread."""
        batch: list[KeyedMessage] = []
        due: float | None = None
        while True:
            wait_s = None if due is None else max(0.0, due - time.monotonic())
            taken = self._queue.take(max(1, self._batch_size - len(batch)), wait_s)
            batch += self._dequeued(taken)
            if taken and due is None:
                due = time.monotonic() + self._queue_time_s
            # In this order: since `take` found nothing, messages may have come and the queue may have been closed.
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
        """Return the messages that the hook returns for those taken from the queue."""
        if self._hooks is None:
            return taken
        return [one for message in taken for one in guarded(self._hooks.after_dequeuing, (message,), message)]
