"""The range assignor: it divides each topic on its own, so equal subscriptions get the same partition numbers.

Source: Kafka's RangeAssignor, without racks.
"""

from collections.abc import Mapping, Sequence

from kafkapy.client.groups.assignors.base import Assignment, Assignor, Member, in_order, no_user_data


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Assign a range of each topic to each subscriber. If it does not divide evenly, the first ones get one more."""
    assignment: Assignment = {member.id: [] for member in members}
    ordered = in_order(members)
    for topic, count in partitions.items():
        readers = [member for member in ordered if topic in member.topics]
        if not readers:
            continue
        share, more = divmod(count, len(readers))
        first = 0
        for at, member in enumerate(readers):
            end = first + share + (at < more)
            assignment[member.id] += [(topic, index) for index in range(first, end)]
            first = end
    return assignment


RANGE = Assignor("range", assign, no_user_data)
