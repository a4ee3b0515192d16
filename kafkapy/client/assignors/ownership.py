"""What members held before, as far as it still counts: where two claim the same partition, the newer one has it.

Source: Kafka's AbstractStickyAssignor.allSubscriptionsEqual. Java shares out also what a member claims of a topic that
has fewer partitions now; here that counts for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkapy.client.assignors.base import NO_GENERATION, Member
from kafkapy.client.assignors.java_order import in_java_order
from kafkapy.client.cluster import TopicPartition


class Claim(NamedTuple):
    """What a member says that it held; generation: None where it does not say since when."""

    partitions: Sequence[TopicPartition]
    generation: int | None

    @property
    def age(self) -> int:
        return NO_GENERATION if self.generation is None else self.generation


class Ownership:
    """The claims of all members, weighed against each other.

    Attributes:
        order: the member ids in the order in which Java goes over them.
        held: by member id, what it holds, in its own order; the ids in `order`.
        disputed: partitions that two members of one generation claim: neither has them.
        newest: the highest generation of all claims.
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
                    # Java asks the subscription of the other one, also where the claim came in its user data.
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
