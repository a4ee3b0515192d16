"""The iteration order of Java's HashMap and HashSet.

Java's sticky assignors resolve ties by that order, so the same order gives the same assignment. Elements are ordered by
the bucket of their hash code, the number of buckets only grows, and elements of one bucket stay in insertion order
(java.util.HashMap, with up to eight elements in a bucket).
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kafkapy.client.cluster import TopicPartition

K = TypeVar("K")

_SMALLEST = 16
_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Return the same hash code as Java's String.hashCode, as an unsigned 32-bit number."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (31 * found + (data[at] << 8 | data[at + 1])) & _MASK
    return found


def partition_hash(partition: TopicPartition) -> int:
    """Return the same hash code as that of Kafka's Java class TopicPartition, as an unsigned 32-bit number."""
    return (31 * (31 + partition[1]) + string_hash(partition[0])) & _MASK


def in_java_order(names: Iterable[str]) -> list[str]:
    """Return the names in the iteration order of a Java HashMap into which they were put in the given order."""
    given = list(names)
    size = _table_size(len(given))
    return sorted(given, key=lambda name: _bucket(string_hash(name), size))


class JavaSet(Generic[K]):
    """A set with the method `first`, which returns the element that Java's HashSet would iterate over first."""

    def __init__(self, hash_of: Callable[[K], int]) -> None:
        self._hash_of = hash_of
        self._held: dict[K, None] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, one: K) -> None:
        self._held[one] = None
        self._most = max(self._most, len(self._held))

    def remove(self, one: K) -> None:
        self._held.pop(one, None)

    def first(self) -> K:
        """Return the element that comes first in the iteration order of Java's HashSet.

        Raise ValueError for an empty set.
        """
        size = _table_size(self._most)
        return min(self._held, key=lambda one: _bucket(self._hash_of(one), size))


def _table_size(count: int) -> int:
    """Return the number of buckets of a Java HashMap that has held up to `count` elements."""
    size = _SMALLEST
    while count > size * 3 // 4:
        size *= 2
    return size


def _bucket(code: int, size: int) -> int:
    """Return the index of the bucket for a hash code in a Java HashMap with `size` buckets."""
    return (code ^ code >> 16) & (size - 1)
