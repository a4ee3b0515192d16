"""Hooks of the original producer.

Source: kafka.producer.async.CallbackHandler of Kafka 0.7; `stored` and `lost` are additions. Every message that the
producer has accepted is passed to exactly one of these two, also by a sync producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy.client.original.producing.producer_messages import KeyedMessage

log = logging.getLogger(__name__)


class CallbackHandler:
    """Base class for `callback.handler`: override the hooks that you need.

    Constructed with the properties of `callback.handler.props`, or with the producer's. An exception in a hook is
    logged, and the messages continue unchanged.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def before_enqueue(self, message: KeyedMessage) -> KeyedMessage:
        """Return the message to put into the queue instead. Called in the thread that calls `send`."""
        return message

    def after_enqueue(self, message: KeyedMessage, added: bool) -> None:
        """Called after a message was put into the queue (`added`), or found no room."""

    def after_dequeuing(self, message: KeyedMessage | None) -> Sequence[KeyedMessage]:
        """Return the messages to add to the batch instead. None: the batch's time is up; it is sent next."""
        return () if message is None else (message,)

    def before_sending(self, messages: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """Return the messages for the event handler instead of the batch."""
        return messages

    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """Return messages to send with the last batch."""
        return ()

    def stored(self, messages: Sequence[KeyedMessage]) -> None:
        """Called when the broker has acknowledged messages; with request.required.acks=0, when they are sent."""

    def lost(self, messages: Sequence[KeyedMessage], reason: Exception) -> None:
        """Called when messages are lost: the queue was full, or sending them failed."""

    def close(self) -> None:
        """Called when all messages are sent or lost."""


def guarded(hook: Callable[..., Any], otherwise: Any, *given: Any) -> Any:
    """Return the result of a hook, or `otherwise` if it raises."""
    try:
        return hook(*given)
    except Exception:
        log.exception("The callback handler failed in %s; the messages continue unchanged.", hook.__name__)
        return otherwise
