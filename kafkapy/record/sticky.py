"""The choice of a partition for records without a key."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


def all_partitions(topic: str, count: int) -> Sequence[int]:
    """Return all partitions of a topic with `count` partitions."""
    return range(count)


class StickyChoice:
    """Chooses partitions for records without a key: one partition until its batch is full, then another (KIP-480).

    Args:
        available: Takes a topic and its number of partitions and returns the partitions to choose from. Like Kafka,
            producers pass those with a leader.
    Attributes:
        current: The current partition of each topic.
    """

    def __init__(self, available: Callable[[str, int], Sequence[int]] = all_partitions) -> None:
        self._available = available
        self.current: dict[str, int] = {}

    def partition(self, topic: str, partitions: int) -> int:
        """Return the current partition for a topic with `partitions` partitions. Choose another one first if it is not
        available any more."""
        current = self.current.get(topic, -1)
        available = self._available(topic, partitions)
        if current not in available:
            current = self.current[topic] = random.choice(available)
        return current

    def batch_is_full(self, topic: str, partition: int, partitions: int) -> None:
        """Switch to another partition, if `partition` is still the topic's current one."""
        if self.current.get(topic) == partition:
            others = [one for one in self._available(topic, partitions) if one != partition]
            if others:
                self.current[topic] = random.choice(others)
