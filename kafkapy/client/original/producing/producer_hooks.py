"""Hooks that a user's class can override to see and change the original producer's messages.

Source: kafka.producer.async.CallbackHandler of Kafka 0.7. The hooks `stored` and `lost` are additions: every message
that the producer has accepted is passed to exactly one of these two, also by a sync producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy.client.original.producing.producer_messages import KeyedMessage

log = logging.getLogger(__name__)


class CallbackHandler:
    """The base class for a `callback.handler`. Override the hooks that you need.

    Constructed with the properties of `callback.handler.props`, or with the producer's properties if those are not set.
    An exception in a hook is logged. After an exception, and if a hook returns None, the messages continue unchanged.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def before_enqueue(self, message: KeyedMessage) -> KeyedMessage:
        """Return the message to put into the queue instead of `message`. Called in the thread that calls `send`."""
        return message

    def after_enqueue(self, message: KeyedMessage, added: bool) -> None:
        """Called after a message was put into the queue (`added` is True), or found no room in it (False)."""

    def after_dequeuing(self, message: KeyedMessage | None) -> Sequence[KeyedMessage]:
        """Return the messages to add to the batch instead of `message`.

        `message` is None when the time of the batch is up and the batch is sent next.
        """
        return () if message is None else (message,)

    def before_sending(self, messages: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Return the messages to pass to the event handler instead of the batch `messages`."""
        return messages

    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """Return additional messages to send with the last batch before the producer closes."""
        return ()

    def stored(self, messages: Sequence[KeyedMessage]) -> None:
        """Called when the broker has acknowledged messages, or with request.required.acks=0 when they are sent."""

    def lost(self, messages: Sequence[KeyedMessage], reason: Exception) -> None:
        """Called when messages are lost, because the queue was full or sending them failed."""

    def close(self) -> None:
        """Called once at the end, when every message was passed to `stored` or `lost`."""


def guarded(hook: Callable[..., Any], otherwise: Any, *given: Any) -> Any:
    """Return the result of a hook called with `given`, or `otherwise` if the result is None.

    If the hook raises, log the error and return `otherwise`.
    """
    try:
        result = hook(*given)
    except Exception:
        log.exception("The callback handler failed in %s; the messages continue unchanged.", hook.__name__)
        return otherwise
    return otherwise if result is None else result
