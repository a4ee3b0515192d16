"""Batches of messages of one partition, each sent as one record batch or message set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.original.producing.producer_messages import KeyedMessage

BATCH_BYTES = 512 * 1024  # below the brokers' default limit of 1 MB for a batch
MESSAGE_BYTES = 40  # the most that a message has besides key and value


class Item(NamedTuple):
    """A message of the user together with its encoded key and value."""

    message: KeyedMessage
    key: bytes | None
    value: bytes | None


class ProducerBatch:
    """Messages of one partition that are sent together.

    error: The reason why the batch was not stored; None if it was.
    numbers: Producer id, epoch and base sequence, by which a broker detects a duplicate. Once `numbers` is set, neither
    `numbers` nor `data` changes.
    """

    __slots__ = ("data", "error", "items", "numbers", "where")

    def __init__(self, where: TopicPartition, items: list[Item], error: Exception | None = None) -> None:
        self.where = where
        self.items = items
        self.error = error
        self.numbers: tuple[int, int, int] | None = None
        self.data: bytes | None = None

    def halves(self) -> list[ProducerBatch]:
        """Split a batch of at least two messages, which was too large, into two.

        Each message keeps its sequence number.
        """
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
    """Split a partition's messages into batches of a size that brokers accept.

    A message that is larger than that size gets its own batch. Each batch gets the given error.
    """
    size = start = 0
    for at, (_, key, value) in enumerate(items):
        one = MESSAGE_BYTES + len(key or b"") + len(value or b"")
        if size and size + one > BATCH_BYTES:
            yield ProducerBatch(where, items[start:at], error)
            size, start = 0, at
        size += one
    if items:
        yield ProducerBatch(where, items[start:] if start else items, error)
