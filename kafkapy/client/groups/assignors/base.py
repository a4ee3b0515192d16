"""The types of an assignor's input and output."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition

NO_GENERATION = -1

# The partitions of each member, in the same order as Java's assignor returns them.
Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A member of the group, as its subscription describes it.

    Attributes:
        topics: The subscribed topics.
        owned: The partitions that the member says it owns.
        generation: The generation in which these partitions were assigned. NO_GENERATION if it is not known.
        user_data: The bytes that the member's assignor has put into the subscription.
    """

    id: str
    topics: Sequence[str]
    instance_id: str | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None


@dataclass(frozen=True)
class Assignor:
    """A partition assignor.

    Attributes:
        name: The name in the group protocol.
        assign: Returns the assignment of all members. Takes the members and the number of partitions of each existing
            topic.
        user_data: Returns the bytes for a member's next subscription. Takes the partitions last assigned to the member
            (None: none yet) and the generation in which they were assigned.
        cooperative: True if members keep their partitions while they rejoin (KIP-429).
    """

    name: str
    assign: Callable[[Sequence[Member], Mapping[str, int]], Assignment]
    user_data: Callable[[Collection[TopicPartition] | None, int], bytes | None]
    cooperative: bool = False


def no_user_data(_assigned: Collection[TopicPartition] | None, _generation: int) -> None:
    """Return None. This is the `user_data` function of an assignor that puts no data into subscriptions."""


def in_order(members: Sequence[Member]) -> list[Member]:
    """Return the static members sorted by instance id, followed by the other members sorted by member id (KIP-345).

    Instance ids stay the same when members restart, so the order does not change then.
    """
    return sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one.id))
