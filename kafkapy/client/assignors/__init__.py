"""Who of a group reads which partition: Kafka's four assignors, as pure functions.

The leader of a group runs one of them over all members (`assign`); before that each member may have put something
into its subscription for it (`user_data`). The answers are those of the Java clients 3.9, member for member: a test
compares them. Racks are not looked at: what Java does for members without one is done for all.

Source: Kafka's ConsumerPartitionAssignor and its implementations; KIP-54, KIP-345, KIP-429, KIP-792.
"""

from collections.abc import Iterable

from kafkapy.client.assignors.base import Assignor, Member
from kafkapy.client.assignors.cooperative_sticky import COOPERATIVE_STICKY
from kafkapy.client.assignors.range import RANGE
from kafkapy.client.assignors.round_robin import ROUND_ROBIN
from kafkapy.client.assignors.sticky import STICKY

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
    """Assignors by their names, or as they are; raises ValueError for a name that there is none of."""
    found = []
    for one in [wanted] if isinstance(wanted, str) else wanted:
        if isinstance(one, str) and one not in ASSIGNORS:
            raise ValueError(f"there is no assignor {one!r}; take one of {', '.join(ASSIGNORS)}")
        found.append(ASSIGNORS[one] if isinstance(one, str) else one)
    if not found:
        raise ValueError(f"no assignor is given; take one or more of {', '.join(ASSIGNORS)}")
    return found
