"""Which partition a record goes to: Kafka's default choice, so that equal keys land where other clients put them."""

import random

from kafkapy._ext.murmur2 import murmur2, partition_of_key

__all__ = ["StickyChoice", "murmur2", "partition_of_key"]


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
