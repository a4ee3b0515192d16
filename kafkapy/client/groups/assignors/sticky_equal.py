"""The sticky assignment if all members subscribe to the same topics.

Members keep the partitions that they owned up to their even share, and the remaining partitions are distributed.

Source: Kafka's AbstractStickyAssignor.ConstrainedAssignmentBuilder (KAFKA-9987), without racks.
"""

from collections.abc import Mapping

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.base import Assignment
from kafkapy.client.groups.assignors.ownership import Ownership


class EqualSubscriptions:
    """Builds one sticky assignment for members that subscribe to the same topics. `build` may be called once.

    After `build`, `moving` has the partitions that move from one member to another, with the new member's id. With the
    cooperative protocol, the new member may get them only after the old member has revoked them.
    """

    def __init__(self, ownership: Ownership, partitions: Mapping[str, int]) -> None:
        self.moving: dict[TopicPartition, str] = {}
        self._ownership = ownership
        self._all = [(topic, index) for topic in sorted(partitions) for index in range(partitions[topic])]
        # The even share. `_with_more` members get one more than `_share`.
        self._share, self._with_more = divmod(len(self._all), len(ownership.order))
        self._assignment: Assignment = {member: [] for member in ownership.order}
        self._taken: dict[TopicPartition, str] = {}
        self._below: list[str] = []  # members with less than their share
        self._at_share: list[str] = []  # members with exactly their share, which may get one more

    def build(self) -> Assignment:
        """Return the sticky assignment: the partitions of each member. Also fill `moving`."""
        for member in self._ownership.order:
            self._keep(member)
        kept = {partition for held in self._assignment.values() for partition in held}
        left = [partition for partition in self._all if partition not in kept]
        self._deal(left)
        return self._assignment

    def _keep(self, member: str) -> None:
        """Let a member keep the partitions that it owned, up to the even share, low partition numbers first.

        If the partitions do not divide evenly, some members may keep one partition more than the even share.
        """
        disputed = self._ownership.disputed
        held = sorted(
            (partition for partition in self._ownership.held[member] if partition not in disputed),
            key=lambda partition: (partition[1], partition[0]),
        )
        mine = self._assignment[member]
        if len(held) < self._share:
            mine += held
            self._below.append(member)
            return
        may_have_more = self._with_more > 0
        keeps = self._share + (may_have_more and len(held) > self._share)
        mine += held[:keeps]
        self._taken.update(dict.fromkeys(held[keeps:], member))
        if keeps > self._share:
            self._with_more -= 1
        elif may_have_more:
            self._at_share.append(member)

    def _deal(self, left: list[TopicPartition]) -> None:
        """Assign the partitions in `left`, which no member has kept.

        Members that have less than the even share get them in turn, up to the even share. Then the members that have
        exactly the even share get one more partition each, as long as partitions are left.
        """
        room = {member: self._share - len(self._assignment[member]) for member in sorted(self._below)}
        waiting = sorted(self._at_share)
        turns: list[str] = []
        while room:
            turns += room
            for member in list(room):
                room[member] -= 1
                if not room[member]:
                    del room[member]
                    waiting.append(member)
        turns += waiting[: len(left) - len(turns)]
        for partition, member in zip(left, turns, strict=True):
            self._assignment[member].append(partition)
            if self._taken.get(partition, member) != member or partition in self._ownership.disputed:
                self.moving[partition] = member
