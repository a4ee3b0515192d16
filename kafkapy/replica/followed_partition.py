"""A partition that this broker follows: its records come from the leader, by the fetches of this broker."""

from __future__ import annotations

from collections.abc import Callable

from kafkapy.log.partition_log import PartitionLog
from kafkapy.replica.hosted_partition import HostedPartition
from kafkapy.replica.stall import StallMonitor


class FollowedPartition(HostedPartition):
    """A partition that another broker leads and this broker replicates, in one leader epoch.

    leader      the id of the leading broker, NO_LEADER (-1) if there is none
    topic_id    the topic id of the controller's request; zero bytes if the controller sent none
    stall       watches the writes to the log's directory
    """

    __slots__ = ("leader", "stall", "topic_id")

    def __init__(
        self,
        log: PartitionLog,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        topic_id: bytes,
        stall: StallMonitor,
        on_change: Callable[[HostedPartition], object],
    ) -> None:
        super().__init__(
            log,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            on_change=on_change,
        )
        self.leader = leader
        self.topic_id = topic_id
        self.stall = stall

    def __repr__(self) -> str:
        return f"FollowedPartition({self.topic}-{self.index}, leader epoch {self.leader_epoch}, {self.log})"
