"""The original producer, which sends at once (sync), or through a queue and a background thread (async).

Source: kafka.producer.Producer of Kafka 0.8.2, kafka.producer.async.AsyncProducer of 0.7.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkapy.client.original.encoders import Encoder
from kafkapy.client.original.partitioners import Partitioner
from kafkapy.client.original.producing.event_handler import DefaultEventHandler, EventHandler
from kafkapy.client.original.producing.producer_config import chosen, chosen_encoders, chosen_partitioner, read_config
from kafkapy.client.original.producing.producer_hooks import CallbackHandler, guarded
from kafkapy.client.original.producing.producer_messages import (
    KeyedMessage,
    LostMessages,
    ProducerClosed,
    ProducerData,
    QueueFull,
    counted,
)
from kafkapy.client.original.producing.producer_queue import BoundedQueue, SendThread

log = logging.getLogger(__name__)

Message = KeyedMessage | ProducerData


class Producer:
    """Kafka's original producer. Many threads may use one.

    Encoders, partitioner and handlers that are passed as arguments override the properties that name their classes.

    `producer.type=sync` (the default): `send` returns when the messages are stored, as `request.required.acks` says
    (default 1; the original has 0). `producer.type=async`: `send` returns when the messages are in the queue.
    Queued messages are sent in batches of `batch.num.messages`, or after `queue.buffering.max.ms`. If the queue is
    full, `send` waits for `queue.enqueue.timeout.ms` (not set: without limit; 0: not at all) and then raises QueueFull.

    Every lost message is counted in `stats` and passed to the method `lost` of the callback handler.

    Args:
        properties: Kafka's producer properties, by their names of 0.8 or 0.7.
        callback_handler: An object whose hooks are called at each stage of the queue; a sync producer calls only
            `before_sending`, `stored`, `lost` and `close`.
    Raises:
        ValueError: A property is not valid. The message has its name and value.
        ConnectionFailed: ZooKeeper at `zk.connect` cannot be reached or has no broker.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        encoder: Encoder | None = None,
        key_encoder: Encoder | None = None,
        partitioner: Partitioner | None = None,
        event_handler: EventHandler | None = None,
        callback_handler: CallbackHandler | None = None,
    ) -> None:
        self.stats: Counter[str] = Counter()  # keys: messages, dropped, failed, resends, serialization_errors
        self._config = config = read_config(properties)
        own, own_key = chosen_encoders(properties)
        self._hooks: CallbackHandler | None = callback_handler or chosen(properties, "callback.handler", {})
        handler = event_handler or chosen(properties, "event.handler", {})
        self._handler: EventHandler = handler or DefaultEventHandler(
            config,
            encoder or own,
            key_encoder or (encoder if "key.serializer.class" not in properties and encoder else own_key),
            partitioner or chosen_partitioner(properties),
            self.stats,
        )
        self._lock = threading.RLock()  # reentrant, as a hook may send lost messages to another topic
        self._counting = threading.Lock()
        self._closed = False
        self._queue: BoundedQueue[KeyedMessage] | None = None
        if config.is_async:
            self._queue = BoundedQueue(config.queue_size)
            self._thread = SendThread(
                self._queue,
                self._send_batch,
                self._hooks,
                batch_size=config.batch_size,
                queue_time_s=config.queue_time_s,
            )
            self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, *messages: Message | Iterable[Message]) -> None:
        """Send messages, given one by one or in lists.

        Raises:
            FailedToSendMessage: Sync producer: messages of this call were lost.
            QueueFull: Async producer: messages of this call found no room in the queue in time. The messages before
                them are in the queue.
            ProducerClosed: The producer is closed; none of the messages is sent.
        """
        given = _flat(messages)
        if self._queue is None:
            with self._lock:
                if self._closed:
                    raise self._late(given)
                self.stats["messages"] += len(given)
                try:
                    self._handle(given)
                except LostMessages as error:
                    self._lost("failed", error.messages, error)
                    raise
                except Exception as error:
                    self._lost("failed", given, error)
                    raise
        else:
            self._enqueue(self._queue, given)

    def close(self) -> None:
        """Send the messages in the queue, then close the connections. Messages that cannot be sent are lost."""
        if self._queue is not None:
            self._queue.close()
            self._thread.join()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        self._handler.close()
        if self._hooks is not None:
            guarded(self._hooks.close, None)

    def _enqueue(self, queue: BoundedQueue[KeyedMessage], messages: list[KeyedMessage]) -> None:
        """Put messages into the queue, waiting for room as configured.

        Raises QueueFull or ProducerClosed, with the messages that the queue did not take.
        """
        hooks = self._hooks
        if hooks is not None:
            messages = [guarded(hooks.before_enqueue, message, message) for message in messages]
        if queue.closed:
            raise self._late(messages)
        # A hook may call `send` in the thread that empties the queue. Waiting for room there would be a deadlock.
        by_itself = threading.current_thread() is self._thread
        done = queue.put(messages, 0.0 if by_itself else self._config.enqueue_timeout_s)
        with self._counting:
            self.stats["messages"] += len(messages)
        if hooks is not None:
            for at, message in enumerate(messages):
                guarded(hooks.after_enqueue, None, message, at < done)
        if done < len(messages):
            left = messages[done:]
            if queue.closed:
                raise self._late(left)
            full = QueueFull(f"The queue is full with {queue.room} messages; it did not take {counted(left)}.", left)
            self._lost("dropped", left, full)
            raise full

    def _late(self, messages: list[KeyedMessage]) -> ProducerClosed:
        """Count messages as dropped, because the producer is closed, and return the ProducerClosed to raise."""
        error = ProducerClosed(f"The producer is closed; it did not take {counted(messages)}.", messages)
        self._lost("dropped", messages, error)
        return error

    def _handle(self, messages: Sequence[KeyedMessage]) -> None:
        """Pass messages to the event handler and call the hooks `before_sending` and `stored`.

        Raises the event handler's errors, such as LostMessages.
        """
        if self._hooks is not None:
            messages = guarded(self._hooks.before_sending, messages, messages)
        if not messages:
            return
        try:
            self._handler.handle(messages)
        except LostMessages as error:
            lost = Counter(map(id, error.messages))
            self._stored([one for one in messages if not _one_of(lost, one)])
            raise
        self._stored(messages)

    def _stored(self, messages: Sequence[KeyedMessage]) -> None:
        if self._hooks is not None and messages:
            guarded(self._hooks.stored, None, messages)

    def _send_batch(self, messages: Sequence[KeyedMessage]) -> None:
        """Send a batch in the async producer's thread. Errors are logged, as no caller could catch them."""
        try:
            self._handle(messages)
        except LostMessages as error:
            log.error("%s", error)
            self._lost("failed", error.messages, error)
        except Exception as error:
            log.exception("The event handler failed; %s may be lost.", counted(messages))
            self._lost("failed", messages, error)

    def _lost(self, how: str, messages: Sequence[KeyedMessage], reason: Exception) -> None:
        """Count lost messages in `stats[how]` and call the hook `lost`."""
        with self._counting:
            self.stats[how] += len(messages)
        if self._hooks is not None:
            guarded(self._hooks.lost, None, messages, reason)


def _one_of(left: Counter[int], message: KeyedMessage) -> bool:
    """Return True if the message's count in `left` is positive, and decrement the count.

    Messages are counted by id, because the same object may be sent twice and lost once.
    """
    left[id(message)] -= 1
    return left[id(message)] >= 0


def _flat(given: Iterable[Message | Iterable[Message]]) -> list[KeyedMessage]:
    """Return the messages in the given objects and nested lists as one list. Raise TypeError for other objects."""
    found: list[KeyedMessage] = []
    for one in given:
        if type(one) is KeyedMessage:
            found.append(one)
        elif isinstance(one, ProducerData):
            found += [KeyedMessage(one.topic, data, None, one.key) for data in one.data]
        elif isinstance(one, (tuple, str, bytes)) or not isinstance(one, Iterable):
            raise TypeError(f"{one!r} is neither a KeyedMessage nor a list of them")
        else:
            found += _flat(one)
    return found
