"""Partitioners, which choose a partition for a key. The producer sends messages without a key to a random partition.

Source: kafka.producer.{Partitioner, DefaultPartitioner, ByteArrayPartitioner}, of Kafka 0.8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafkapy._ext.java_hash import hash_of_bytes, hash_of_string
from kafkapy._ext.murmur2 import partition_of_key

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


class Partitioner(Protocol):
    """The interface of a `partitioner.class`. A user's class is constructed with the producer's properties."""

    def partition(self, key: Any, partitions: int) -> int:
        """Return a partition number from 0 to `partitions` - 1 for a key that is not encoded yet."""


def java_hash(key: Any) -> int:
    """Return the signed 32-bit number that Java's `hashCode` gives for the same key.

    A str is hashed like a String, and bytes like Arrays.hashCode(byte[]), because a byte[]'s own hashCode depends on
    its address. An int is hashed like an Integer, or like a Long if it does not fit in 32 bits. Raises TypeError for
    other types.
    """
    if isinstance(key, str):
        return hash_of_string(key)
    if isinstance(key, (bytes, bytearray, memoryview)):
        return hash_of_bytes(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int) and _INT_MIN <= key <= _INT_MAX:
        return key
    if isinstance(key, int) and -(1 << 63) <= key < 1 << 63:
        folded = (key ^ (key & (1 << 64) - 1) >> 32) & 0xFFFFFFFF
        return folded - (1 << 32) if folded > _INT_MAX else folded
    raise TypeError(
        f"the key {key!r} is of type {type(key).__name__}, which the default partitioner cannot hash: "
        "give bytes, a string or a whole number, or set partitioner.class"
    )


class DefaultPartitioner:
    """Chooses partitions like the original producers: Java's hash code of the key modulo the number of partitions."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def partition(self, key: Any, partitions: int) -> int:
        hashed = java_hash(key)
        return 0 if hashed == _INT_MIN else abs(hashed) % partitions


class Murmur2Partitioner:
    """Chooses partitions by the murmur2 hash of the key like Kafka's clients since 0.8.2.

    Strings are hashed as UTF-8.
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def partition(self, key: Any, partitions: int) -> int:
        return partition_of_key(key.encode() if isinstance(key, str) else key, partitions)


PARTITIONERS: dict[str, type[Partitioner]] = {
    "kafka.producer.DefaultPartitioner": DefaultPartitioner,
    "kafka.producer.ByteArrayPartitioner": DefaultPartitioner,
    "murmur2": Murmur2Partitioner,
}
