"""The order in which Java's HashMap and HashSet go over what they hold.

Java's sticky assignors decide by that order where several choices are equally good; with the same order the choices
are the same. A table's places are those of the hash codes, its size only grows, and what shares a place stays in the
order in which it came (java.util.HashMap, up to eight in one place).
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kafkapy.client.cluster import TopicPartition

K = TypeVar("K")

_SMALLEST = 16
_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """String.hashCode, as an unsigned number."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (31 * found + (data[at] << 8 | data[at + 1])) & _MASK
    return found


def partition_hash(partition: TopicPartition) -> int:
    """TopicPartition.hashCode, as an unsigned number."""
    return (31 * (31 + partition[1]) + string_hash(partition[0])) & _MASK


def in_java_order(names: Iterable[str]) -> list[str]:
    """The names as a HashMap goes over them into which they were put in the order given."""
    given = list(names)
    size = _table_size(len(given))
    return sorted(given, key=lambda name: _place(string_hash(name), size))


class JavaSet(Generic[K]):
    """A set whose first element is the one that a HashSet would give first."""

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
        """Raises ValueError when it is empty."""
        size = _table_size(self._most)
        return min(self._held, key=lambda one: _place(self._hash_of(one), size))


def _table_size(count: int) -> int:
    size = _SMALLEST
    while count > size * 3 // 4:
        size *= 2
    return size


def _place(code: int, size: int) -> int:
    return (code ^ code >> 16) & (size - 1)
