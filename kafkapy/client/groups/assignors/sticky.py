"""The sticky assignor: members keep their partitions as far as an even assignment allows.

Members give up all partitions before a rebalance, so their user data says which partitions they owned. Source: Kafka's
StickyAssignor (KIP-54). The user data is of version 1, or of version 0, which has no generation (KIP-341).
"""

from collections.abc import Collection, Mapping, Sequence
from struct import Struct, error

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors.base import NO_GENERATION, Assignment, Assignor, Member
from kafkapy.client.groups.assignors.ownership import Claim, Ownership
from kafkapy.client.groups.assignors.sticky_equal import EqualSubscriptions
from kafkapy.client.groups.assignors.sticky_general import DifferentSubscriptions

_INT16, _INT32 = Struct(">h"), Struct(">i")


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Return the sticky assignment. The partitions that each member owned before are decoded from its user data.

    `partitions` has the number of partitions of each existing topic.
    """
    return build(members, {member.id: decode_claim(member.user_data) for member in members}, partitions)[0]


def build(
    members: Sequence[Member], claims: Mapping[str, Claim], partitions: Mapping[str, int]
) -> tuple[Assignment, dict[TopicPartition, str] | None]:
    """Return the sticky assignment, and the partitions that move from one member to another, with their new member ids.

    The second value is None if the members have different subscriptions; it is not computed then.

    Args:
        claims: The partitions that each member says it owned, by member id.
        partitions: The number of partitions of each existing topic.
    """
    if not members:
        return {}, {}
    subscriptions = {frozenset(member.topics) for member in members}
    wanted = {topic: partitions[topic] for topic in frozenset().union(*subscriptions) if topic in partitions}
    ownership = Ownership(members, claims, wanted)
    if len(subscriptions) == 1:
        equal = EqualSubscriptions(ownership, wanted)
        return equal.build(), equal.moving
    return DifferentSubscriptions(members, claims, ownership, wanted).build(), None


def encode_claim(assigned: Collection[TopicPartition] | None, generation: int) -> bytes | None:
    """Return user data of version 1: the assigned partitions by topic, and the generation in which they were assigned.

    Return None if no partitions were assigned yet (`assigned` is None).
    """
    if assigned is None:
        return None
    topics: dict[str, list[int]] = {}
    for topic, index in assigned:
        topics.setdefault(topic, []).append(index)
    data = bytearray(_INT32.pack(len(topics)))
    for topic, indexes in topics.items():
        name = topic.encode()
        data += _INT16.pack(len(name)) + name + _INT32.pack(len(indexes))
        for index in indexes:
            data += _INT32.pack(index)
    return bytes(data + _INT32.pack(generation))


def decode_claim(data: bytes | None) -> Claim:
    """Return the Claim in a member's user data.

    Return a Claim without partitions if the user data cannot be decoded.
    """
    if not data:
        return Claim((), None)
    try:
        partitions, at = _decode_partitions(data)
    except (error, ValueError):
        return Claim((), NO_GENERATION)
    if len(data) - at < _INT32.size:
        return Claim(partitions, None)
    return Claim(partitions, _INT32.unpack_from(data, at)[0])


def _decode_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    """Return the partitions in user data, and the position in it of the generation that may follow them.

    Raise struct.error or ValueError if the user data is malformed.
    """
    found = []
    (topics,) = _INT32.unpack_from(data)
    at = _INT32.size
    _check(topics, len(data) - at)
    for _ in range(topics):
        (size,) = _INT16.unpack_from(data, at)
        at += _INT16.size
        _check(size, len(data) - at)
        topic = data[at : at + size].decode(errors="replace")
        at += size
        (count,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        _check(count, len(data) - at)
        for _ in range(count):
            found.append((topic, _INT32.unpack_from(data, at)[0]))
            at += _INT32.size
    return found, at


def _check(size: int, left: int) -> None:
    """Raise ValueError if `size`, a number of elements or bytes in user data, is negative or above `left`.

    `left` is the number of bytes that follow.
    """
    if not 0 <= size <= left:
        raise ValueError(f"{size} elements or bytes where {left} bytes are left")


STICKY = Assignor("sticky", assign, encode_claim)
