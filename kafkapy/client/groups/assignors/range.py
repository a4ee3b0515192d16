"""The range assignor, which divides the partitions of each topic separately among the topic's subscribers.

So members with equal subscriptions get the same partition numbers in each topic with equally many partitions.

Source: Kafka's RangeAssignor, without racks.
"""

from collections.abc import Mapping, Sequence

from kafkapy.client.groups.assignors.base import Assignment, Assignor, Member, in_order, no_user_data


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Return the assignment. Each subscriber of a topic gets a range of consecutive partitions of the topic.

    If the partitions do not divide evenly, the first subscribers get one partition more. `partitions` has the number of
    partitions of each existing topic.
    """
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
