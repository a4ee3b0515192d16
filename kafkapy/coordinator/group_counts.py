"""Counters for Kafka's group-coordinator-metrics, over all shards of a broker; server.gauges exports them."""

from dataclasses import dataclass


@dataclass
class GroupCounts:
    """Counters that only grow."""

    commits: int = 0  # committed offsets, including those committed in open transactions
    expired: int = 0  # offsets deleted by retention
    deleted: int = 0  # offsets deleted by OffsetDelete
    rebalances: int = 0  # rebalances for which the leader sent the assignment
