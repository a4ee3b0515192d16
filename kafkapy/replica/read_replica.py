"""Chooses the replica that a consumer should read from: one in its own rack (KIP-392).

Source: ReplicaManager.findPreferredReadReplica, org.apache.kafka.common.replica.RackAwareReplicaSelector.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkapy.replica.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def replica_in_rack(
    partition: Partition, fetch_offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """Return the broker id of the follower from which a consumer in `rack` should fetch, None for the leader.

    A follower can be chosen if it is in sync and in the rack, and has the consumer's next record. Of several, the
    one that has the most records is chosen. The leader stays if it is in the rack itself. `rack_of(broker_id)` returns
    None if the broker is not alive, or has no rack.
    """
    in_sync = partition.in_sync
    if in_sync is None or not rack or rack_of(partition.broker_id) == rack:
        return None
    isr = in_sync.state.isr
    found = [
        (follower.end_offset, follower.caught_up_at, broker_id)
        for broker_id, follower in list(in_sync.followers.items())
        if broker_id in isr
        and follower.start_offset <= fetch_offset <= follower.end_offset
        and rack_of(broker_id) == rack
    ]
    return max(found)[2] if found else None
