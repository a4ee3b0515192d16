"""What an assignor is given and what it gives."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkapy.client.cluster import TopicPartition

NO_GENERATION = -1

# Which partitions each member gets, in the order that Java's assignor names them.
Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A member of the group as its subscription describes it.

    owned, generation: what it still holds and since which generation (NO_GENERATION: it does not say); user_data:
    what its own assignor put there.
    """

    id: str
    topics: Sequence[str]
    instance_id: str | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None


@dataclass(frozen=True)
class Assignor:
    """One way to share partitions out.

    name: as the group protocol has it. assign: of all members and the number of partitions of each topic, topics that
    are not there left out. user_data: what a member puts into its next subscription, of the partitions last assigned
    (None: none yet) and their generation. cooperative: members keep what they hold while they join (KIP-429).
    """

    name: str
    assign: Callable[[Sequence[Member], Mapping[str, int]], Assignment]
    user_data: Callable[[Collection[TopicPartition] | None, int], bytes | None]
    cooperative: bool = False


def no_user_data(_assigned: Collection[TopicPartition] | None, _generation: int) -> None:
    """Of an assignor that remembers nothing."""


def in_order(members: Sequence[Member]) -> list[Member]:
    """Static members by their instance id, then the others by their member id: an order that restarts do not change
    where there are instance ids (KIP-345)."""
    return sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one.id))
