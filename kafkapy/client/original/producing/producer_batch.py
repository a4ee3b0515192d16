"""Batches of messages for one partition, sent as one record batch or message set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.original.producing.producer_messages import KeyedMessage

BATCH_BYTES = 512 * 1024  # below the brokers' default limit of 1 MB for a batch
MESSAGE_BYTES = 40  # the most that a message has besides key and value


class Item(NamedTuple):
    """A message with its encoded key and value."""

    message: KeyedMessage
    key: bytes | None
    value: bytes | None


class ProducerBatch:
    """Messages of one partition that are sent together.

    error: Why the batch was not stored. numbers: Producer id, epoch and base sequence, by which a broker detects a
    duplicate. Once set, neither they nor `data` change.
    """

    __slots__ = ("data", "error", "items", "numbers", "where")

    def __init__(self, where: TopicPartition, items: list[Item], error: Exception | None = None) -> None:
        self.where = where
        self.items = items
        self.error = error
        self.numbers: tuple[int, int, int] | None = None
        self.data: bytes | None = None

    def halves(self) -> list[ProducerBatch]:
        """Split a batch that was too large and has at least two messages. Each message keeps its sequence number."""
        middle = len(self.items) // 2
        parts = [ProducerBatch(self.where, self.items[:middle]), ProducerBatch(self.where, self.items[middle:])]
        if self.numbers is not None:
            producer_id, epoch, first = self.numbers
            for part, sequence in zip(parts, (first, first + middle), strict=True):
                part.numbers = (producer_id, epoch, sequence & 0x7FFFFFFF)
        return parts


def split_into_batches(
    where: TopicPartition, items: list[Item], error: Exception | None = None
) -> Iterator[ProducerBatch]:
    """Split the messages of a partition into batches of a size that brokers accept. A larger message is alone."""
    size = start = 0
    for at, (_, key, value) in enumerate(items):
        one = MESSAGE_BYTES + len(key or b"") + len(value or b"")
        if size and size + one > BATCH_BYTES:
            yield ProducerBatch(where, items[start:at], error)
            size, start = 0, at
        size += one
    if items:
        yield ProducerBatch(where, items[start:] if start else items, error)
