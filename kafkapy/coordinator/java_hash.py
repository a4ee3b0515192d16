"""Which shard a key belongs to, as Kafka counts: Java's String.hashCode, made positive, modulo the partitions."""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    """Java's String.hashCode, signed: over UTF-16 units, so that a character beyond U+FFFF counts as its two."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + units[at] + (units[at + 1] << 8)) & _MASK
    return value - ((value & _SIGN) << 1)


@lru_cache(maxsize=4096)  # each request of a client names the same group again
def partition_of(key: str, partitions: int) -> int:
    """The partition that holds a group or a transactional id (Kafka's Utils.abs leaves the lowest number as 0)."""
    value = abs(java_hash(key))
    return (0 if value == _SIGN else value) % partitions
