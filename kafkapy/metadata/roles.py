"""The partitions in a controller's LeaderAndIsr and StopReplica requests to a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NO_LEADER = -1
# Leader epochs in a StopPartition that are not compared with the broker's leader epoch.
ANY_EPOCH = -1  # the controller does not know the leader epoch
TOPIC_DELETED = -2


class PartitionRole(NamedTuple):
    """One partition of a LeaderAndIsr request. The broker `leader` is the partition's leader, the other brokers in
    `replicas` are followers.

    `partition_epoch` is the version of the partition's state node. The response to AlterPartition, by which a leader
    changes the ISR, may come before or after a LeaderAndIsr request: the higher version wins. `is_new` says that
    the partition has no records yet, so that a broker may create its log although one of its log directories is
    offline. `controller_epoch` is that of the controller that has written the state, `adding` and `removing` are the
    replicas that a reassignment in progress changes, `recovery` is the leader recovery state (KIP-704), and `offline`
    are the replicas that cannot lead.
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
    controller_epoch: int = 0
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()
    recovery: int = 0
    offline: Sequence[int] = ()


class StopPartition(NamedTuple):
    """One partition of a StopReplica request.

    With `delete`, the broker removes the partition and its log. Otherwise the broker keeps the partition, its log and
    its role as leader or follower, and only stops fetching from the leader.
    """

    topic: str
    partition: int
    leader_epoch: int
    delete: bool
