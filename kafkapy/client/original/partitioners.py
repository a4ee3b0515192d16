"""What chooses the partition of a key. A message without one goes to any partition.

Source: kafka.producer.{Partitioner, DefaultPartitioner, ByteArrayPartitioner}, of Kafka 0.8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafkapy._ext.java_hash import hash_of_bytes, hash_of_string
from kafkapy._ext.murmur2 import partition_of_key

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


class Partitioner(Protocol):
    """`partitioner.class`. One of your own is made with the producer's properties."""

    def partition(self, key: Any, partitions: int) -> int:
        """A number from 0 to `partitions` - 1; the key is as it was given, not encoded."""


def java_hash(key: Any) -> int:
    """What `hashCode` of the same key is in Java: 32 bits with sign.

    Strings: that of String. Bytes: Arrays.hashCode (a byte[] itself has one that is by chance). Whole numbers: that of
    Integer, or of Long where they do not fit. TypeError for another key.
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
        f"the key {key!r} is of type {type(key).__name__}, of which the default partitioner knows no hash: "
        "give bytes, a string or a whole number, or set partitioner.class"
    )


class DefaultPartitioner:
    """Java's hash without its sign, modulo the partitions: where the original producers put the same key."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def partition(self, key: Any, partitions: int) -> int:
        hashed = java_hash(key)
        return 0 if hashed == _INT_MIN else abs(hashed) % partitions


class Murmur2Partitioner:
    """Where Kafka's clients since 0.8.2 put the same bytes; of a string those in UTF-8."""

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        pass

    def partition(self, key: Any, partitions: int) -> int:
        return partition_of_key(key.encode() if isinstance(key, str) else key, partitions)


PARTITIONERS: dict[str, type[Partitioner]] = {
    "kafka.producer.DefaultPartitioner": DefaultPartitioner,
    "kafka.producer.ByteArrayPartitioner": DefaultPartitioner,
    "murmur2": Murmur2Partitioner,
}
