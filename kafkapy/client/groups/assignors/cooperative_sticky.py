"""The cooperative sticky assignor. A partition that moves is revoked first, and assigned in the follow-up rebalance.

Source: Kafka's CooperativeStickyAssignor (KIP-429). The generation is in the subscription (KIP-792); older clients have
it in the user data.
"""

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.base import NO_GENERATION, Assignment, Assignor, Member
from kafkapy.client.groups.assignors.ownership import Claim
from kafkapy.client.groups.assignors.sticky import build

_GENERATION = Struct(">i")


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Return the sticky assignment, without the partitions that another member still has to revoke.

    `partitions` has the number of partitions of each existing topic.
    """
    assignment, moving = build(members, {member.id: _claim(member) for member in members}, partitions)
    if moving is None:
        moving = _moving(members, assignment)
    for partition, member in moving.items():
        assignment[member].remove(partition)
    return assignment


def user_data(_assigned: Collection[TopicPartition] | None, generation: int) -> bytes:
    """Return the encoded generation.

    The owned partitions are not included, because the subscription itself has them.
    """
    return _GENERATION.pack(generation)


def _claim(member: Member) -> Claim:
    """Return the Claim of a member: the partitions that it says it owns, and the generation that assigned them.

    The generation is taken from the subscription, or from the user data of older clients.
    """
    if member.generation != NO_GENERATION:
        return Claim(member.owned, member.generation)
    if member.user_data is None:
        return Claim(member.owned, None)
    if len(member.user_data) < _GENERATION.size:
        return Claim(member.owned, NO_GENERATION)
    return Claim(member.owned, _GENERATION.unpack_from(member.user_data)[0])


def _moving(members: Sequence[Member], assignment: Assignment) -> dict[TopicPartition, str]:
    """Return the partitions that one member owns and another member is to get, with the id of the new member."""
    given_up = {one for member in members for one in set(member.owned).difference(assignment[member.id])}
    return {
        partition: member.id
        for member in members
        for partition in assignment[member.id]
        if partition in given_up and partition not in set(member.owned)
    }


COOPERATIVE_STICKY = Assignor("cooperative-sticky", assign, user_data, cooperative=True)
