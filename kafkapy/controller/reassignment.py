"""Partition reassignment: check a request, and compute the topic's assignment during and after the reassignment.

During a reassignment the partition's assignment has the adding and the removing replicas; `Topic.moves` says which are
which. The reassignment is complete when all target replicas are in sync. To cancel a reassignment is to reassign the
partition to its original replicas.

Source: KafkaController.processApiPartitionReassignment, ReplicaAssignment (KIP-455).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topic_nodes import Move, Topic

_NOWHERE = Move([], [])


def check_target(topic: Topic | None, index: int, target: Sequence[int] | None, brokers: Collection[int]) -> None:
    """Raise KafkaError if partition `index` of the topic cannot be reassigned to the replicas `target`.

    With `target` None, raise KafkaError if there is no reassignment in progress that could be cancelled. `brokers` are
    the ids of the live brokers.
    """
    if target is None:
        if topic is None or index not in topic.moves:
            raise KafkaError(Errors.NO_REASSIGNMENT_IN_PROGRESS)
        return
    where = f"the replicas {list(target)} of partition {index}"
    if not target:
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, f"partition {index} would have no replicas")
    if len(set(target)) < len(target):
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, f"{where} name a broker twice")
    if min(target) < 0:
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, f"{where} name a negative broker id")
    here = [] if topic is None else _origin(topic, index)
    absent = sorted(set(target) - set(here) - set(brokers))
    if absent:
        raise KafkaError(
            Errors.INVALID_REPLICA_ASSIGNMENT,
            f"{where} name brokers that are not live: {absent}; live brokers: {sorted(brokers)}",
        )
    if topic is None or index not in topic.assignment:
        raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")


def target_of(topic: Topic, index: int) -> list[int]:
    """Return the partition's replicas after its reassignment; its present replicas if it is not being reassigned."""
    leaving = topic.moves.get(index, _NOWHERE).removing
    return [one for one in topic.assignment[index] if one not in leaving]


def with_target(topic: Topic, index: int, target: Sequence[int] | None) -> Topic:
    """Return the topic with a reassignment of the partition to `target` in progress, or to its original replicas if
    `target` is None.

    The target replicas come first, so the original order of replicas may be lost. Nothing is in progress if no replica
    is added or removed.
    """
    origin = _origin(topic, index)
    goal = list(origin if target is None else target)
    everywhere = list(dict.fromkeys([*goal, *origin]))
    move = Move([one for one in everywhere if one not in origin], [one for one in everywhere if one not in goal])
    moves = {other: one for other, one in topic.moves.items() if other != index}
    if move != _NOWHERE:
        moves[index] = move
    return topic._replace(assignment={**topic.assignment, index: everywhere}, moves=dict(sorted(moves.items())))


def _origin(topic: Topic, index: int) -> list[int]:
    """Return the replicas of the partition without those that a reassignment in progress is adding."""
    coming = topic.moves.get(index, _NOWHERE).adding
    return [one for one in topic.assignment.get(index, ()) if one not in coming]
