"""Kafka's default partitioning, so that equal keys go to the same partition as with other clients."""

import random
from collections.abc import Callable, Sequence

from kafkapy._ext.murmur2 import murmur2, partition_of_key

__all__ = ["StickyChoice", "all_partitions", "murmur2", "partition_of_key"]


def all_partitions(topic: str, count: int) -> Sequence[int]:
    """Return all partitions of a topic with `count` partitions."""
    return range(count)


class StickyChoice:
    """Chooses partitions for records without a key: one partition until its batch is full, then another (KIP-480).

    Args:
        available: Takes a topic and its number of partitions and returns the partitions to choose from. Like Kafka,
            producers pass those with a leader.
    """

    def __init__(self, available: Callable[[str, int], Sequence[int]] = all_partitions) -> None:
        self._available = available
        self._current: dict[str, int] = {}

    def partition(self, topic: str, partitions: int) -> int:
        """Return the current partition for a topic with `partitions` partitions."""
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = random.choice(self._available(topic, partitions))
        return current

    def batch_is_full(self, topic: str, partition: int, partitions: int) -> None:
        """Switch to another partition, if `partition` is still the topic's current one."""
        if self._current.get(topic) == partition:
            others = [one for one in self._available(topic, partitions) if one != partition]
            if others:
                self._current[topic] = random.choice(others)
