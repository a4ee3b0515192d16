"""Which partition a record goes to: Kafka's default choice, so that equal keys land where other clients put them."""

import random
from functools import lru_cache

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (class `org.apache.kafka.common.utils.Utils`), as an unsigned number."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=16384)
def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a record with this key, among `partitions` (all, also those without a leader)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyChoice:
    """For records without a key: one partition until its batch is full, then another (KIP-480)."""

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def partition(self, topic: str, partitions: int) -> int:
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = random.randrange(partitions)
        return current

    def batch_is_full(self, topic: str, partition: int, partitions: int) -> None:
        if self._current.get(topic) == partition and partitions > 1:
            # One of the others, each equally likely.
            self._current[topic] = (partition + random.randrange(1, partitions)) % partitions
