"""The original producer's messages, and its errors, which have the messages that were lost.

Source: kafka.producer.{KeyedMessage, ProducerData}, kafka.common.{QueueFullException, FailedToSendMessageException}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkapy.client.errors import ClientError


class KeyedMessage(NamedTuple):
    """A message.

    `partition_key`, which is not sent, chooses the partition in place of `key`. Without both, it is random.
    A `message` of None is a tombstone: it deletes the key in a compacted topic.
    """

    topic: str
    message: Any
    key: Any = None
    partition_key: Any = None


class ProducerData(NamedTuple):
    """Several messages for one partition, chosen by a key that is not sent; the form of Kafka 0.7."""

    topic: str
    key: Any
    data: Sequence[Any]


class LostMessages(ClientError):
    """Messages were not stored, or are not known to be stored: `messages`. `reason` is the error."""

    def __init__(self, text: str, messages: Sequence[KeyedMessage], reason: Exception | None = None) -> None:
        super().__init__(text)
        self.messages = messages
        self.reason = reason


class QueueFull(LostMessages):
    """The async producer's queue had no room for the messages in time."""


class ProducerClosed(LostMessages):
    """The producer was already closed when the messages were sent."""


class FailedToSendMessage(LostMessages):
    """The messages were not stored after all retries."""


def counted(messages: Sequence[KeyedMessage]) -> str:
    """Return a text such as `1 message for orders`, `3 messages for clicks, orders`."""
    topics = ", ".join(sorted({message.topic for message in messages}))
    return f"{len(messages)} message{'s' if len(messages) != 1 else ''} for {topics}"
