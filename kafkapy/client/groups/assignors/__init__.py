"""Kafka's four partition assignors, as pure functions.

The group's leader runs an assignor over all members (`assign`). An assignor may also put data of its own into the
subscription of each member (`user_data`), which the leader then gets. The assignments are the same as those of the Java
clients 3.9, member for member; a test compares them. Racks are ignored: all members are treated as Java treats members
without a rack.

Source: Kafka's ConsumerPartitionAssignor and its implementations; KIP-54, KIP-345, KIP-429, KIP-792.
"""

from collections.abc import Iterable

from kafkapy.client.groups.assignors.base import Assignor, Member
from kafkapy.client.groups.assignors.cooperative_sticky import COOPERATIVE_STICKY
from kafkapy.client.groups.assignors.range import RANGE
from kafkapy.client.groups.assignors.round_robin import ROUND_ROBIN
from kafkapy.client.groups.assignors.sticky import STICKY

ASSIGNORS = {one.name: one for one in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)}

__all__ = [
    "ASSIGNORS",
    "COOPERATIVE_STICKY",
    "RANGE",
    "ROUND_ROBIN",
    "STICKY",
    "Assignor",
    "Member",
    "assignors_of",
]


def assignors_of(wanted: Iterable[str | Assignor]) -> list[Assignor]:
    """Return the Assignor for each element of `wanted`, which is an Assignor or the name of one.

    Raise ValueError for an unknown name, and if `wanted` is empty.
    """
    found = []
    for one in [wanted] if isinstance(wanted, str) else wanted:
        if isinstance(one, str) and one not in ASSIGNORS:
            raise ValueError(f"there is no assignor {one!r}; use one of {', '.join(ASSIGNORS)}")
        found.append(ASSIGNORS[one] if isinstance(one, str) else one)
    if not found:
        raise ValueError(f"no assignor is given; use one or more of {', '.join(ASSIGNORS)}")
    return found
