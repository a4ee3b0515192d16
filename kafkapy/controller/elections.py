"""Pure functions that choose the leader and the ISR of a partition.

A new state is in the next leader epoch. The functions return None if no replica can become the leader; the present
state then stays. `is_online(broker_id)` returns True if the broker is live and the partition's log directory there is
online. Source: kafka.controller.Election, ReplicaStateMachine.doRemoveReplicasFromIsr; KIP-704.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kafkapy.metadata.roles import NO_LEADER
from kafkapy.metadata.topic_nodes import RECOVERING, PartitionState

IsOnline = Callable[[int], bool]


def first_state(replicas: Sequence[int], is_online: IsOnline, leader_epoch: int = 0) -> PartitionState | None:
    """Return the state of a partition that had none, in which the first online replica leads and all online ones are in
    sync. Return None if no replica is online.
    """
    isr = [one for one in replicas if is_online(one)]
    return PartitionState(isr[0], leader_epoch, isr, 0) if isr else None


def elect_offline(
    replicas: Sequence[int], state: PartitionState, is_online: IsOnline, *, unclean: bool
) -> PartitionState | None:
    """Return the state after the leader was lost: the first online replica that is in the ISR becomes the leader.

    If there is none and `unclean` is True, the first online replica becomes the leader and the only member of the ISR,
    with recovery state RECOVERING. Records may be lost then.
    """
    online = [one for one in replicas if is_online(one)]
    leader = next((one for one in online if one in state.isr), None)
    if leader is not None:
        return _next(state, leader, [one for one in state.isr if is_online(one)])
    if unclean and online:
        return _next(state, online[0], [online[0]])._replace(recovery=RECOVERING)
    return None


def elect_preferred(replicas: Sequence[int], state: PartitionState, is_online: IsOnline) -> PartitionState | None:
    """Return the state with the first replica of the assignment as leader, if it is online and in the ISR."""
    return elect_among(replicas[:1], state, is_online)


def elect_among(candidates: Sequence[int], state: PartitionState, is_online: IsOnline) -> PartitionState | None:
    """Return the state with the first of `candidates` as leader that is online and in the ISR. The ISR stays."""
    leader = next((one for one in candidates if is_online(one) and one in state.isr), None)
    return None if leader is None else _next(state, leader, state.isr)


def elect_for_shutdown(
    replicas: Sequence[int], state: PartitionState, is_online: IsOnline, shutting_down: Collection[int]
) -> PartitionState | None:
    """Return the state with a leader that is not shutting down. Brokers that are shutting down leave the ISR.

    `is_online` returns True for brokers that are shutting down, too.
    """
    isr = [one for one in state.isr if one not in shutting_down]
    leader = next((one for one in replicas if is_online(one) and one in isr), None)
    return None if leader is None else _next(state, leader, isr)


def without(state: PartitionState, gone: Collection[int]) -> PartitionState | None:
    """Return the state without these replicas in the ISR, and without a leader if the leader is one of them. Return
    None if that changes nothing.

    If all members are among `gone`, the ISR stays: only they have all committed records. (Kafka removes one replica
    after the other, and keeps the last.)
    """
    isr = [one for one in state.isr if one not in gone] or state.isr
    leader = NO_LEADER if state.leader in gone else state.leader
    return None if (isr, leader) == (state.isr, state.leader) else _next(state, leader, isr)


def same_leader(state: PartitionState) -> PartitionState:
    """Return the state in the next leader epoch, by which brokers learn that the replicas have changed."""
    return _next(state, state.leader, state.isr)


def _next(state: PartitionState, leader: int, isr: Sequence[int]) -> PartitionState:
    return PartitionState(leader, state.leader_epoch + 1, list(isr), state.controller_epoch, state.recovery)


def is_imbalanced(preferred_count: int, elsewhere: int, percentage: int) -> bool:
    """Return True if more than `percentage` % of the partitions whose preferred leader is a broker are led by others.

    Source: KafkaController.checkAndTriggerAutoLeaderRebalance.
    """
    return preferred_count > 0 and elsewhere * 100 > percentage * preferred_count
