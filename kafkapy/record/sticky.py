"""Chooses the partition for records without a key."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


def all_partitions(topic: str, count: int) -> Sequence[int]:
    """Return the numbers of all partitions of a topic with `count` partitions."""
    return range(count)


class StickyChoice:
    """Chooses partitions for records without a key: one partition until its batch is full, then another partition
    (KIP-480).

    Args:
        available: A function of a topic and its number of partitions that returns the partitions to choose from.
            Producers pass a function that returns the partitions with a leader, as Kafka does.
    Attributes:
        current: The current partition of each topic.
    """

    def __init__(self, available: Callable[[str, int], Sequence[int]] = all_partitions) -> None:
        self._available = available
        self.current: dict[str, int] = {}

    def partition(self, topic: str, partitions: int) -> int:
        """Return the partition for the next record without a key, in a topic with `partitions` partitions. This is the
        current partition; if it is not available any more, another one is chosen first."""
        current = self.current.get(topic, -1)
        available = self._available(topic, partitions)
        if current not in available:
            current = self.current[topic] = random.choice(available)
        return current

    def batch_is_full(self, topic: str, partition: int, partitions: int) -> None:
        """Choose another current partition for the topic because the batch of `partition` is full. Nothing changes if
        `partition` is no longer the current one."""
        if self.current.get(topic) == partition:
            others = [one for one in self._available(topic, partitions) if one != partition]
            if others:
                self.current[topic] = random.choice(others)
