"""What is given to the original producer, and what it says of messages that it could not send.

Source: kafka.producer.{KeyedMessage, ProducerData}, kafka.common.{QueueFullException, FailedToSendMessageException}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkapy.client.errors import ClientError


class KeyedMessage(NamedTuple):
    """One message. `partition_key` chooses the partition in the key's place and is not sent; without either the
    message goes to any partition. A message of None deletes its key in a compacted topic."""

    topic: str
    message: Any
    key: Any = None
    partition_key: Any = None


class ProducerData(NamedTuple):
    """Kafka 0.7's form: several messages for one partition, chosen by a key that is not sent."""

    topic: str
    key: Any
    data: Sequence[Any]


class LostMessages(ClientError):
    """Messages that were not stored, or are not known to be: `messages`, and `reason` why."""

    def __init__(self, text: str, messages: Sequence[KeyedMessage], reason: Exception | None = None) -> None:
        super().__init__(text)
        self.messages = messages
        self.reason = reason


class QueueFull(LostMessages):
    """The queue of the async producer had no room for them in time."""


class ProducerClosed(LostMessages):
    """They came when the producer was closed already."""


class FailedToSendMessage(LostMessages):
    """They were given up, after all retries."""


def counted(messages: Sequence[KeyedMessage]) -> str:
    """`1 message for orders`, `3 messages for clicks, orders`."""
    topics = ", ".join(sorted({message.topic for message in messages}))
    return f"{len(messages)} message{'s' if len(messages) != 1 else ''} for {topics}"
