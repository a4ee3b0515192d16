"""Counters for Kafka's metrics group-coordinator-metrics, summed over all partitions of `__consumer_offsets` that a
broker leads. The module server.metrics.coordinators exports the counters."""

from dataclasses import dataclass


@dataclass
class GroupCounts:
    """Counters of the group coordinator's commits, deleted offsets and rebalances since the broker started."""

    commits: int = 0  # committed offsets, including those committed in open transactions
    expired: int = 0  # offsets deleted by retention
    deleted: int = 0  # offsets deleted by OffsetDelete
    rebalances: int = 0  # rebalances for which the leader sent the assignment
