"""The sticky assignment if members subscribe to different topics.

Members keep the partitions that they owned, and the remaining partitions go to the members with the fewest partitions.
Then partitions move between members as long as that makes the assignment more even.

Source: Kafka's AbstractStickyAssignor.GeneralAssignmentBuilder (KIP-54), without racks. Unlike Java, a partition never
moves back to a member that no longer subscribes to its topic.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.base import Assignment, Member
from kafkapy.client.groups.assignors.java_order import JavaSet, partition_hash
from kafkapy.client.groups.assignors.ownership import Claim, Ownership

Pair = tuple[str, str]  # the member that a partition moves from, and the member that it moves to


class DifferentSubscriptions:
    """Builds one sticky assignment for members that subscribe to different topics. `build` may be called once."""

    def __init__(
        self,
        members: Sequence[Member],
        claims: Mapping[str, Claim],
        ownership: Ownership,
        partitions: Mapping[str, int],
    ) -> None:
        self._partitions = partitions
        by_id = {member.id: member for member in members}
        self._topics = {id: [topic for topic in by_id[id].topics if topic in partitions] for id in ownership.order}
        self._readers: dict[str, list[str]] = {topic: [] for topic in partitions}
        for member in ownership.order:
            for topic in self._topics[member]:
                self._readers[topic].append(member)
        # Topics with few subscribers first.
        self._all = [
            (topic, index)
            for topic in sorted(partitions, key=lambda topic: (len(self._readers[topic]), topic))
            for index in range(partitions[topic])
        ]
        self._held: dict[str, dict[TopicPartition, None]] = {}
        self._must_revoke = False
        for member in ownership.order:
            kept = {one: None for one in ownership.held[member] if one[0] in self._topics[member]}
            self._must_revoke |= len(kept) < len(ownership.held[member])
            self._held[member] = kept
        self._owner = {partition: member for member, held in self._held.items() for partition in held}
        self._before = self._owners_before(claims, ownership)
        self._movements = Movements()
        # (number of partitions, member id), the member with the fewest first.
        self._by_load = sorted((len(held), member) for member, held in self._held.items())

    def build(self) -> Assignment:
        """Return the sticky assignment: the partitions of each member."""
        fresh = self._by_load[-1][0] == 0
        left = [partition for partition in self._all if partition not in self._owner]
        for partition in left:
            self._assign(partition)
        movable = [partition for partition in self._all if len(self._readers[partition[0]]) > 1]
        self._by_load = [one for one in self._by_load if self._can_change(one[1])]
        before = self._snapshot()
        if not self._must_revoke:
            self._balance([partition for partition in left if len(self._readers[partition[0]]) > 1])
        changed = self._balance(movable)
        if not fresh and changed and self._unevenness(self._held) >= self._unevenness(before):
            self._held = before
        return {member: list(held) for member, held in self._held.items()}

    def _owners_before(self, claims: Mapping[str, Claim], ownership: Ownership) -> dict[TopicPartition, str]:
        """Return the last owner of each partition that a member claims from an older generation than the newest.

        If such a partition has to move, it preferably moves back to that owner. Owners that no longer subscribe to the
        partition's topic are left out.
        """
        found: dict[TopicPartition, tuple[int, str]] = {}
        for member in ownership.order:
            claim = claims[member]
            if claim.age < ownership.newest:
                for partition in claim.partitions:
                    if partition not in found or claim.age > found[partition][0]:
                        found[partition] = claim.age, member
        return {one: member for one, (_, member) in found.items() if one[0] in self._topics[member]}

    def _assign(self, partition: TopicPartition) -> None:
        """Assign the partition to the member with the fewest partitions among the subscribers of its topic."""
        for at, (load, member) in enumerate(self._by_load):
            if partition[0] in self._topics[member]:
                del self._by_load[at]
                self._held[member][partition] = None
                self._owner[partition] = member
                insort(self._by_load, (load + 1, member))
                return

    def _can_change(self, member: str) -> bool:
        """Return True if the member could get more partitions, or has a partition that another member could get."""
        held = self._held[member]
        could = sum(self._partitions[topic] for topic in self._topics[member])
        return len(held) < could or any(len(self._readers[topic]) > 1 for topic, _ in held)

    def _balance(self, movable: Sequence[TopicPartition]) -> bool:
        """Move these partitions between members until no move makes the assignment more even.

        Return True if a partition was moved.
        """
        changed = False
        while True:
            moved = False
            for partition in movable:
                if self._is_balanced():
                    break
                owner = self._owner[partition]
                load = len(self._held[owner])
                before = self._before.get(partition)
                if before is not None and load > len(self._held[before]) + 1:
                    self._move(partition, before)
                    moved = True
                elif any(load > len(self._held[other]) + 1 for other in self._readers[partition[0]]):
                    best = next(member for _, member in self._by_load if partition[0] in self._topics[member])
                    self._move(partition, best)
                    moved = True
            changed |= moved
            if not moved:
                return changed

    def _is_balanced(self) -> bool:
        """Return True if no move of a partition would make the assignment more even.

        This is so if the members' numbers of partitions differ by at most one, or if no member can take a partition
        from a member that has at least two more.
        """
        if not self._by_load or self._by_load[0][0] >= self._by_load[-1][0] - 1:
            return True
        most: dict[str, int] = {}  # topic -> the highest load of a member that has one of its partitions
        for load, member in self._by_load:
            for topic, _ in self._held[member]:
                most[topic] = load
        return not any(
            load + 1 < most.get(topic, 0) for load, member in self._by_load for topic in self._topics[member]
        )

    def _move(self, wanted: TopicPartition, new: str) -> None:
        """Move the partition `wanted` to the member `new`.

        If a partition of the same topic has moved from `new` to the owner of `wanted` before, move that partition back
        instead.
        """
        partition = self._movements.instead_of(wanted, self._owner[wanted], new)
        old = self._owner[partition]
        for member in {old, new}:
            del self._by_load[bisect_left(self._by_load, (len(self._held[member]), member))]
        self._movements.record(partition, old, new)
        del self._held[old][partition]
        self._held[new][partition] = None
        self._owner[partition] = new
        for member in {old, new}:
            insort(self._by_load, (len(self._held[member]), member))

    def _snapshot(self) -> dict[str, dict[TopicPartition, None]]:
        return {member: dict(held) for member, held in self._held.items()}

    def _unevenness(self, held: Mapping[str, Mapping[TopicPartition, None]]) -> int:
        """Return a measure of how uneven an assignment is: 0 if all members have equally many partitions.

        It is the sum, over all pairs of members whose partitions can change, of the difference of their numbers of
        partitions.
        """
        loads = sorted(len(held[member]) for _, member in self._by_load)
        return sum(load * (2 * at - len(loads) + 1) for at, load in enumerate(loads))


class Movements:
    """The movements of partitions between members so far (Kafka's AbstractStickyAssignor.PartitionMovements).

    If a partition is to move from member A to member B, but another partition of the same topic has moved from B to A
    before, that other partition moves back to B instead, so that fewer partitions move.
    """

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._by_topic: defaultdict[str, dict[Pair, JavaSet[TopicPartition]]] = defaultdict(dict)

    def record(self, partition: TopicPartition, old: str, new: str) -> None:
        """Record that a partition has moved from the member `old` to the member `new`.

        Several movements of a partition are merged into one movement from its first owner.
        """
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
        """Return the partition that should move from `old` to `new` in place of `partition`; often `partition` itself.

        It is another partition of the same topic if that one has moved the other way before.
        """
        if partition in self._pair_of:
            old = self._pair_of[partition][0]
        back = self._by_topic[partition[0]].get((new, old))
        return back.first() if back else partition
