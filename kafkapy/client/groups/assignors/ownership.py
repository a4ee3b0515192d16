"""Finds out which member owned each partition before. If two members claim a partition, the newer generation wins.

Source: Kafka's AbstractStickyAssignor.allSubscriptionsEqual. Unlike Java, claims to partitions that no longer exist are
ignored.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.base import NO_GENERATION, Member
from kafkapy.client.groups.assignors.java_order import in_java_order


class Claim(NamedTuple):
    """The partitions that a member says it owned.

    `generation` is the generation in which these partitions were assigned, or None if the member does not say.
    """

    partitions: Sequence[TopicPartition]
    generation: int | None

    @property
    def age(self) -> int:
        """The generation as a number for comparisons, NO_GENERATION if there is none."""
        return NO_GENERATION if self.generation is None else self.generation


class Ownership:
    """The partitions that each member owned, after conflicting claims are resolved.

    Attributes:
        order: The member ids in the iteration order of a Java HashMap.
        held: The partitions that each member owned, in the order in which the member listed them. The member ids are in
            the same order as in `order`.
        disputed: The partitions that two members of the same generation claim. Neither member is counted as the owner.
        newest: The highest generation of all claims.
    """

    def __init__(self, members: Sequence[Member], claims: Mapping[str, Claim], topics: Mapping[str, int]) -> None:
        by_id = {member.id: member for member in members}
        self.order = in_java_order(by_id)
        self.held: dict[str, dict[TopicPartition, None]] = {}
        self.disputed: set[TopicPartition] = set()
        self.newest = max([NO_GENERATION, *(claim.age for claim in claims.values())])
        owner: dict[TopicPartition, str] = {}
        for member in self.order:
            mine = self.held[member] = {}
            for partition in claims[member].partitions:
                if not 0 <= partition[1] < topics.get(partition[0], 0):
                    continue
                other = owner.get(partition)
                if other is not None:
                    # Like Java, compare with the other subscription's generation, even if its claim came as user data.
                    its_age = by_id[other].generation
                    if claims[member].age < its_age:
                        continue
                    self.held[other].pop(partition, None)
                    if claims[member].age == its_age:
                        self.disputed.add(partition)
                        owner[partition] = member
                        continue
                mine[partition] = None
                owner[partition] = member
