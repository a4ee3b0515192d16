"""The sticky assignment where all members subscribe the same topics: members keep what they held up to their share,
the rest is dealt out.

Source: Kafka's AbstractStickyAssignor.ConstrainedAssignmentBuilder (KAFKA-9987), without racks.
"""

from collections.abc import Mapping

from kafkapy.client.assignors.base import Assignment
from kafkapy.client.assignors.ownership import Ownership
from kafkapy.client.cluster import TopicPartition


class EqualSubscriptions:
    """Builds one assignment.

    `moving` has, after `build`, the partitions that were taken from one member and given to another: a cooperative
    member may have them only when the other one has let go.
    """

    def __init__(self, ownership: Ownership, partitions: Mapping[str, int]) -> None:
        self.moving: dict[TopicPartition, str] = {}
        self._ownership = ownership
        self._all = [(topic, index) for topic in sorted(partitions) for index in range(partitions[topic])]
        # Every member gets `_share`, and `_with_more` of them one more.
        self._share, self._with_more = divmod(len(self._all), len(ownership.order))
        self._assignment: Assignment = {member: [] for member in ownership.order}
        self._taken: dict[TopicPartition, str] = {}
        self._below: list[str] = []  # members that have less than their share
        self._at_share: list[str] = []  # those that have it and may get one more

    def build(self) -> Assignment:
        for member in self._ownership.order:
            self._keep(member)
        kept = {partition for held in self._assignment.values() for partition in held}
        left = [partition for partition in self._all if partition not in kept]
        self._deal(left)
        return self._assignment

    def _keep(self, member: str) -> None:
        """What the member held, up to its share; the lowest partition numbers stay."""
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
        """Members below their share get one in turn until they have it; then those at it get their one more."""
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
