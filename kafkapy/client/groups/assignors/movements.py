"""The movements of partitions between members while an assignment is balanced.

If a partition should move from A to B, but another one of the same topic has moved from B to A before, that other one
moves back instead, so that fewer partitions move.

Source: Kafka's AbstractStickyAssignor.PartitionMovements.
"""

from collections import defaultdict

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.java_order import JavaSet, partition_hash

Pair = tuple[str, str]  # from, to


class Movements:
    """Records which partition has moved between which members."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._by_topic: defaultdict[str, dict[Pair, JavaSet[TopicPartition]]] = defaultdict(dict)

    def record(self, partition: TopicPartition, old: str, new: str) -> None:
        """Record a movement. Several movements of a partition count as one from its first owner."""
        before = self._pair_of.pop(partition, None)
        if before is not None:
            old = before[0]
            moved = self._by_topic[partition[0]][before]
            moved.remove(partition)
            if not moved:
                del self._by_topic[partition[0]][before]
        if old != new:
            self._pair_of[partition] = old, new
            of_topic = self._by_topic[partition[0]]
            of_topic.setdefault((old, new), JavaSet(partition_hash)).add(partition)

    def instead_of(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """Return the partition to move instead of `partition` from `old` to `new`: often `partition` itself."""
        if partition in self._pair_of:
            old = self._pair_of[partition][0]
        back = self._by_topic[partition[0]].get((new, old))
        return back.first() if back else partition
