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

    owned, generation: The partitions that it owns, and the generation that assigned them (NO_GENERATION: not known).
    user_data: The bytes that its own assignor has put there.
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

    name: As in the group protocol.
    assign: Returns the assignment for all members, given the number of partitions of each existing topic.
    user_data: Returns the bytes for a member's next subscription, given the last assigned partitions (None: none yet)
        and their generation.
    cooperative: Members keep their partitions while they join (KIP-429).
    """

    name: str
    assign: Callable[[Sequence[Member], Mapping[str, int]], Assignment]
    user_data: Callable[[Collection[TopicPartition] | None, int], bytes | None]
    cooperative: bool = False


def no_user_data(_assigned: Collection[TopicPartition] | None, _generation: int) -> None:
    """Return None: the `user_data` of an assignor without state."""


def in_order(members: Sequence[Member]) -> list[Member]:
    """Return static members by instance id, then the others by member id (KIP-345).

    With instance ids, restarts do not change the order.
    """
    return sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one.id))
