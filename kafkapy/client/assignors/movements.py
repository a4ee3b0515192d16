"""Which partitions went from which member to which while an assignment was balanced.

Where a partition of a topic would go from A to B although another one of that topic went from B to A before, that one
goes back instead: fewer partitions move.

Source: Kafka's AbstractStickyAssignor.PartitionMovements.
"""

from collections import defaultdict

from kafkapy.client.assignors.java_order import JavaSet, partition_hash
from kafkapy.client.cluster import TopicPartition

Pair = tuple[str, str]  # from, to


class Movements:
    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._by_topic: defaultdict[str, dict[Pair, JavaSet[TopicPartition]]] = defaultdict(dict)

    def note(self, partition: TopicPartition, old: str, new: str) -> None:
        """The partition went from `old` to `new`; what counts is where it was first."""
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
        """The partition to move where `partition` was to go from `old` to `new`."""
        if partition in self._pair_of:
            old = self._pair_of[partition][0]
        back = self._by_topic[partition[0]].get((new, old))
        return back.first() if back else partition
