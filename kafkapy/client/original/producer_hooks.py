"""Hooks at each stage of the async producer's queue.

Source: kafka.producer.async.CallbackHandler of Kafka 0.7; `stored` and `lost` are new. Each message that the producer
has taken comes to one of these two, once, also in a sync producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy.client.original.producer_messages import KeyedMessage

log = logging.getLogger(__name__)


class CallbackHandler:
    """`callback.handler`: override what is wanted. Made with the properties of `callback.handler.props`, else the
    producer's. What a hook raises is logged, and the messages go on as they were."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def before_enqueue(self, message: KeyedMessage) -> KeyedMessage:
        """What goes into the queue in its place; in the thread that sends."""
        return message

    def after_enqueue(self, message: KeyedMessage, added: bool) -> None:
        """Whether there was room for it."""

    def after_dequeuing(self, message: KeyedMessage | None) -> Sequence[KeyedMessage]:
        """What joins the batch in its place; None: the time of the batch is up, and it is about to go."""
        return () if message is None else (message,)

    def before_sending(self, messages: Sequence[KeyedMessage]) -> Sequence[KeyedMessage]:
        """What the event handler gets in place of the batch."""
        return messages

    def last_batch_before_close(self) -> Sequence[KeyedMessage]:
        """What is to be sent with the last batch."""
        return ()

    def stored(self, messages: Sequence[KeyedMessage]) -> None:
        """The broker has acknowledged them; with request.required.acks=0: they are on their way."""

    def lost(self, messages: Sequence[KeyedMessage], reason: Exception) -> None:
        """They were given up: the queue was full, or sending them failed."""

    def close(self) -> None:
        """All is sent or lost."""


def guarded(hook: Callable[..., Any], otherwise: Any, *given: Any) -> Any:
    """What a hook returns; when it fails, `otherwise`."""
    try:
        return hook(*given)
    except Exception:
        log.exception("The callback handler failed in %s; the messages go on as they were.", hook.__name__)
        return otherwise
