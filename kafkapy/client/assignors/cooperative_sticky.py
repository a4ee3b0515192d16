"""The sticky assignment for members that keep reading while they join: what goes from one member to another is taken
away first and given in the rebalance that follows.

Source: Kafka's CooperativeStickyAssignor (KIP-429); the generation comes in the subscription (KIP-792), from older
clients in the user data.
"""

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

from kafkapy.client.assignors.base import NO_GENERATION, Assignment, Assignor, Member
from kafkapy.client.assignors.ownership import Claim
from kafkapy.client.assignors.sticky import build
from kafkapy.client.cluster import TopicPartition

_GENERATION = Struct(">i")


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Shares all partitions out but those that another member has to let go of first."""
    assignment, moving = build(members, {member.id: _claim(member) for member in members}, partitions)
    if moving is None:
        moving = _moving(members, assignment)
    for partition, member in moving.items():
        assignment[member].remove(partition)
    return assignment


def user_data(_assigned: Collection[TopicPartition] | None, generation: int) -> bytes:
    """The generation; the partitions are in the subscription itself."""
    return _GENERATION.pack(generation)


def _claim(member: Member) -> Claim:
    if member.generation != NO_GENERATION:
        return Claim(member.owned, member.generation)
    if member.user_data is None:
        return Claim(member.owned, None)
    if len(member.user_data) < _GENERATION.size:
        return Claim(member.owned, NO_GENERATION)
    return Claim(member.owned, _GENERATION.unpack_from(member.user_data)[0])


def _moving(members: Sequence[Member], assignment: Assignment) -> dict[TopicPartition, str]:
    """Partitions that one member has to let go of, and who is to get them."""
    let_go = {one for member in members for one in set(member.owned).difference(assignment[member.id])}
    return {
        partition: member.id
        for member in members
        for partition in assignment[member.id]
        if partition in let_go and partition not in set(member.owned)
    }


COOPERATIVE_STICKY = Assignor("cooperative-sticky", assign, user_data, cooperative=True)
