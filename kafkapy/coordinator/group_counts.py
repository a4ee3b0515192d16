"""What Kafka's group-coordinator-metrics count, over all shards of a broker; server.gauges exports it."""

from dataclasses import dataclass


@dataclass
class GroupCounts:
    """Plain numbers that only grow."""

    commits: int = 0  # offsets that were committed, those of open transactions too
    expired: int = 0  # offsets that nobody committed for too long
    deleted: int = 0  # offsets that somebody asked to be deleted
    rebalances: int = 0  # those that were completed: the leader's assignment has come
