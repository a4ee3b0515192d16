"""The cooperative sticky assignor. A partition that moves is first revoked, and assigned in the follow-up rebalance.

Source: Kafka's CooperativeStickyAssignor (KIP-429). The generation is in the subscription (KIP-792); older clients
have it in the user data.
"""

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.base import NO_GENERATION, Assignment, Assignor, Member
from kafkapy.client.groups.assignors.ownership import Claim
from kafkapy.client.groups.assignors.sticky import build

_GENERATION = Struct(">i")


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Assign all partitions, except those that another member has to give up first."""
    assignment, moving = build(members, {member.id: _claim(member) for member in members}, partitions)
    if moving is None:
        moving = _moving(members, assignment)
    for partition, member in moving.items():
        assignment[member].remove(partition)
    return assignment


def user_data(_assigned: Collection[TopicPartition] | None, generation: int) -> bytes:
    """Return the encoded generation. The owned partitions are in the subscription itself."""
    return _GENERATION.pack(generation)


def _claim(member: Member) -> Claim:
    """Return the partitions that the member owns and the generation that it states."""
    if member.generation != NO_GENERATION:
        return Claim(member.owned, member.generation)
    if member.user_data is None:
        return Claim(member.owned, None)
    if len(member.user_data) < _GENERATION.size:
        return Claim(member.owned, NO_GENERATION)
    return Claim(member.owned, _GENERATION.unpack_from(member.user_data)[0])


def _moving(members: Sequence[Member], assignment: Assignment) -> dict[TopicPartition, str]:
    """Return the partitions that one member has to give up, with the member that gets each."""
    given_up = {one for member in members for one in set(member.owned).difference(assignment[member.id])}
    return {
        partition: member.id
        for member in members
        for partition in assignment[member.id]
        if partition in given_up and partition not in set(member.owned)
    }


COOPERATIVE_STICKY = Assignor("cooperative-sticky", assign, user_data, cooperative=True)
