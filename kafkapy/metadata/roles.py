"""What a controller tells a broker about partitions: the content of LeaderAndIsr and StopReplica requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NO_LEADER = -1
# Leader epochs of StopPartition that are not compared with the broker's.
ANY_EPOCH = -1  # the controller knows none
TOPIC_DELETED = -2


class PartitionRole(NamedTuple):
    """One partition of a LeaderAndIsr request: the broker `leader` leads it, the other `replicas` follow.

    `partition_epoch` is the version of the partition's state node. No broker looks at it yet: it is for leaders that
    change the ISR by AlterPartition, whose response may come before or after a role. `is_new` says that the partition
    has no records yet, so that a broker may create its log although one of its log directories is offline.
    """

    topic: str
    partition: int
    topic_id: bytes
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int]
    replicas: Sequence[int]
    is_new: bool = False


class StopPartition(NamedTuple):
    """One partition of a StopReplica request.

    With `delete` the broker removes the partition and its log. Otherwise it keeps both, and its role, and only stops
    fetching from the leader.
    """

    topic: str
    partition: int
    leader_epoch: int
    delete: bool
