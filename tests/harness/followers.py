"""Stand-ins for followers of a partition that this broker leads: their fetches, and arguments for a Partition."""

from collections.abc import Sequence
from typing import Any

from kafkapy.log.partition_log import PartitionLog
from kafkapy.replica.in_sync_replicas import InSyncReplicas, IsrEnvironment
from kafkapy.replica.partition import Partition


def follower_at(partition: Partition, broker_id: int, end_offset: int, start_offset: int = 0) -> None:
    """Let the partition handle the Fetch request of a follower that has all records below `end_offset`."""
    partition.follower_fetched(broker_id, end_offset, start_offset, partition.log.log_end_offset)


def replicas_of(
    log: PartitionLog,
    replicas: Sequence[int],
    isr: Sequence[int],
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    env: IsrEnvironment | None = None,
) -> dict[str, Any]:
    """Return the arguments of Partition for these replicas, of which broker 0 is the leader."""
    if tuple(replicas) == tuple(isr) == (0,):
        return {}
    env = env or IsrEnvironment(log.clock)
    in_sync = InSyncReplicas(
        log,
        env,
        broker_id=0,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=replicas,
        isr=isr,
        epoch_start=log.log_end_offset,
    )
    return {"in_sync": in_sync, "isr_env": env}
