"""The round-robin assignor. It assigns the partitions of all topics one by one to the members in turn.

Source: Kafka's RoundRobinAssignor.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

from kafkapy.client.groups.assignors.base import Assignment, Assignor, Member, in_order, no_user_data


def assign(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Return the assignment. Each partition goes to the next member in turn that subscribes to the partition's topic.

    `partitions` has the number of partitions of each existing topic.
    """
    assignment: Assignment = {member.id: [] for member in members}
    wanted = {topic for member in members for topic in member.topics}
    turn = cycle(in_order(members))
    for topic in sorted(wanted & partitions.keys()):
        for index in range(partitions[topic]):
            reader = next(member for member in turn if topic in member.topics)
            assignment[reader.id].append((topic, index))
    return assignment


ROUND_ROBIN = Assignor("roundrobin", assign, no_user_data)
