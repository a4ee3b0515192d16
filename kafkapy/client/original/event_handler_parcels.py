"""Messages of one partition that travel together, as one batch or message set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.original.producer_messages import KeyedMessage

PARCEL_BYTES = 512 * 1024  # brokers take batches of a megabyte, unless they are told otherwise
MESSAGE_BYTES = 40  # what a message has besides key and value, at most


class Item(NamedTuple):
    """A message, and the bytes of its key and value."""

    message: KeyedMessage
    key: bytes | None
    value: bytes | None


class Parcel:
    """`error`: why it did not arrive. `numbers`: producer id, epoch and first sequence, by which a broker knows it
    again; they and `data` stay as they are once there."""

    __slots__ = ("data", "error", "items", "numbers", "where")

    def __init__(self, where: TopicPartition, items: list[Item], error: Exception | None = None) -> None:
        self.where = where
        self.items = items
        self.error = error
        self.numbers: tuple[int, int, int] | None = None
        self.data: bytes | None = None

    def halves(self) -> list[Parcel]:
        """Two in the place of one that was too large and has two messages at least; each keeps its number."""
        middle = len(self.items) // 2
        parts = [Parcel(self.where, self.items[:middle]), Parcel(self.where, self.items[middle:])]
        if self.numbers is not None:
            producer_id, epoch, first = self.numbers
            for part, sequence in zip(parts, (first, first + middle), strict=True):
                part.numbers = (producer_id, epoch, sequence & 0x7FFFFFFF)
        return parts


def parcels_of(where: TopicPartition, items: list[Item], error: Exception | None = None) -> Iterator[Parcel]:
    """All of them, in parcels of a size that brokers take. A larger message goes alone."""
    size = start = 0
    for at, (_, key, value) in enumerate(items):
        one = MESSAGE_BYTES + len(key or b"") + len(value or b"")
        if size and size + one > PARCEL_BYTES:
            yield Parcel(where, items[start:at], error)
            size, start = 0, at
        size += one
    if items:
        yield Parcel(where, items[start:] if start else items, error)
