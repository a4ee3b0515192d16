"""Topics and partition states, and their encoding as metadata nodes: a node `/brokers/topics/NAME` for each topic, and
a state node below it for each partition.

Source: Kafka's TopicZNode and TopicPartitionStateZNode (in ZkData).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkapy.metadata import paths
from kafkapy.metadata.configs import encode_settings
from kafkapy.metadata.ids import ZERO_ID, decode_id, encode_id
from kafkapy.metadata.topic_rules import Assignment
from kafkapy.metadata.tree import Create, Operation, Set

_TOPIC_VERSION = 3
_STATE_VERSION = 1


class Move(NamedTuple):
    """A partition's reassignment in progress: the ids of the brokers that are being added as replicas, and of those
    being removed."""

    adding: list[int]
    removing: list[int]


_NO_MOVES: Mapping[int, Move] = MappingProxyType({})


class Topic(NamedTuple):
    """A topic as stored in the metadata.

    id           the topic id, 16 bytes
    assignment   broker ids of the replicas by partition, the preferred leader first, including replicas that are being
                added or removed
    moves        reassignments in progress, by partition
    """

    name: str
    id: bytes
    assignment: dict[int, list[int]]
    moves: Mapping[int, Move] = _NO_MOVES


RECOVERED, RECOVERING = 0, 1


class PartitionState(NamedTuple):
    """The state of a partition: its leader (-1 if there is none), leader epoch and ISR, and the epoch of the controller
    that wrote the state.

    `recovery` is RECOVERING after an unclean election, until the leader has changed the ISR (KIP-704).
    """

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int
    recovery: int = RECOVERED


def decode_topic(name: str, data: bytes) -> Topic:
    """Return the topic decoded from the data of its node. Raises ValueError, which names the node's path, for invalid
    data."""
    path = paths.topic(name)
    value = paths.from_json(data, path)
    text = value.get("topic_id")
    try:
        assignment = {int(partition): list(replicas) for partition, replicas in value["partitions"].items()}
        _check(assignment)
        # Sorted by the numbers alone: to compare pairs takes long, and holds the GIL.
        in_order = {index: assignment[index] for index in sorted(assignment)}
        topic = Topic(name, decode_id(text) if text else ZERO_ID, in_order)
        adding, removing = (value.get(f"{what}_replicas") or {} for what in ("adding", "removing"))
        moves = {
            int(partition): Move(list(adding.get(partition, ())), list(removing.get(partition, ())))
            for partition in {**adding, **removing}
        }
        for index, move in moves.items():
            if set(assignment[index]) <= set(move.removing):
                raise ValueError(f"the reassignment of partition {index} removes all replicas, {assignment[index]}")
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the metadata at {path} is not a valid topic: {error}") from None
    return topic._replace(moves=dict(sorted(moves.items()))) if moves else topic


def _check(assignment: Mapping[int, list[Any]]) -> None:
    """Raise ValueError if a partition has no replicas, or a replica that is not a broker id or is listed twice."""
    everywhere = list(chain.from_iterable(assignment.values()))
    if (
        all(assignment.values())
        and {*map(type, everywhere)} <= {int}
        and min(everywhere, default=0) >= 0
        and sum(map(len, map(set, assignment.values()))) == len(everywhere)
    ):
        return  # one check for all partitions is faster: there may be ten thousand
    for partition, replicas in assignment.items():
        if not replicas or any(type(one) is not int or one < 0 for one in replicas) or len({*replicas}) < len(replicas):
            raise ValueError(f"partition {partition} has the replicas {replicas}")


def encode_topic(topic: Topic) -> bytes:
    """Return the data of a topic's node: the topic as JSON."""
    value = {
        "partitions": {str(partition): replicas for partition, replicas in topic.assignment.items()},
        "topic_id": encode_id(topic.id),
        "adding_replicas": {str(partition): move.adding for partition, move in topic.moves.items() if move.adding},
        "removing_replicas": {
            str(partition): move.removing for partition, move in topic.moves.items() if move.removing
        },
        "version": _TOPIC_VERSION,
    }
    if topic.id == ZERO_ID:
        del value["topic_id"]
    return paths.to_json_in_pieces(value, "partitions")


def decode_state(data: bytes, path: str) -> PartitionState:
    """Return the partition state decoded from the data of the state node at `path`. Raises ValueError, which names the
    path, for invalid data."""
    value = paths.from_json(data, path)
    try:
        numbers = (int(value[name]) for name in ("leader", "leader_epoch", "controller_epoch"))
        leader, leader_epoch, controller_epoch = numbers
        isr = [int(replica) for replica in value["isr"]]
        recovery = int(value.get("leader_recovery_state", RECOVERED))
        return PartitionState(leader, leader_epoch, isr, controller_epoch, recovery)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the metadata at {path} is not a valid partition state: {error!r}") from None


def encode_state(state: PartitionState) -> bytes:
    """Return the data of a partition's state node: the state as JSON."""
    value = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": _STATE_VERSION,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.recovery != RECOVERED:
        value["leader_recovery_state"] = state.recovery
    return paths.to_json(value)


def creation(
    topic: Topic,
    overrides: Mapping[str, str],
    states: Mapping[int, PartitionState],
    *,
    config_exists: bool = False,
) -> Iterator[Operation]:
    """Yield the operations that create a topic in the metadata tree: its configuration, its node and the states of its
    partitions.

    `overrides` are the topic's configuration. `config_exists` says that the configuration node exists already, so that
    its data is replaced.
    """
    config_path = paths.config("topics", topic.name)
    config = encode_settings(overrides)
    yield Set(config_path, config) if config_exists else Create(config_path, config)
    yield Create(paths.topic(topic.name), encode_topic(topic))
    yield Create(paths.partitions(topic.name))
    yield from new_partitions(topic.name, states)


def first_states(assignment: Assignment, controller_epoch: int) -> dict[int, PartitionState]:
    """Return the initial states of new partitions, by partition. The leader is the partition's first replica, and all
    replicas are in the ISR."""
    return {
        partition: PartitionState(replicas[0], 0, list(replicas), controller_epoch)
        for partition, replicas in assignment.items()
    }


def new_partitions(name: str, states: Mapping[int, PartitionState]) -> Iterator[Operation]:
    """Yield the operations that create the nodes of a topic's partitions with these states."""
    for partition, state in states.items():
        yield Create(f"{paths.partitions(name)}/{partition}")
        yield Create(paths.partition_state(name, partition), encode_state(state))
