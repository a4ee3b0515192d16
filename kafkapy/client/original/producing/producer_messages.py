"""The original producer's messages, and its errors, which contain the messages that were lost.

Source: kafka.producer.{KeyedMessage, ProducerData}, kafka.common.{QueueFullException, FailedToSendMessageException}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkapy.client.errors import ClientError


class KeyedMessage(NamedTuple):
    """A message to send to a topic, with an optional key.

    `partition_key`, which is not sent, chooses the partition in place of `key`. Without `key` and `partition_key`, the
    partition is random. A `message` of None is a tombstone, which deletes the key in a compacted topic.
    """

    topic: str
    message: Any
    key: Any = None
    partition_key: Any = None


class ProducerData(NamedTuple):
    """Several messages for one partition, the form of Kafka 0.7. The key chooses the partition and is not sent."""

    topic: str
    key: Any
    data: Sequence[Any]


class LostMessages(ClientError):
    """The messages in `messages` were not stored, or it is not known whether they were. `reason` is the cause."""

    def __init__(self, text: str, messages: Sequence[KeyedMessage], reason: Exception | None = None) -> None:
        super().__init__(text)
        self.messages = messages
        self.reason = reason


class QueueFull(LostMessages):
    """The async producer's queue had no room for these messages within the time limit."""


class ProducerClosed(LostMessages):
    """The producer was already closed when these messages were passed to `send`."""


class FailedToSendMessage(LostMessages):
    """These messages were not stored, after all retries or because their error cannot be retried."""


def counted(messages: Sequence[KeyedMessage]) -> str:
    """Return the number of messages and their topics as text, such as `3 messages for clicks, orders`."""
    topics = ", ".join(sorted({message.topic for message in messages}))
    return f"{len(messages)} message{'s' if len(messages) != 1 else ''} for {topics}"
