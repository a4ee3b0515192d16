"""The topics: names, ids, where their partitions are, and who leads them.

A topic is `/brokers/topics/NAME` with its id and assignment; each partition has a state node with leader,
leader epoch and in-sync replicas. A topic is deleted in two steps, as in Kafka: it is marked (and gone for
clients), its logs are removed, then its nodes. A crash between the steps leaves the mark, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.configs import encode_settings
from kafkapy.metadata.ids import ZERO_ID, decode_id, encode_id, new_id
from kafkapy.metadata.topic_rules import (
    Assignment,
    check_collision,
    is_internal,
    plan_more_partitions,
    plan_topic,
    validate_name,
)
from kafkapy.metadata.tree import BadVersion, Create, Delete, NodeExists, NoNode, Operation, Set, Tree, TreeError

__all__ = [
    "PartitionState",
    "Topic",
    "TopicRegistry",
    "is_internal",
    "plan_more_partitions",
    "plan_topic",
    "validate_name",
]

_TOPIC_VERSION = 3
_STATE_VERSION = 1

Finished = Callable[["KafkaError | None"], None]


class Topic(NamedTuple):
    """`id` is 16 bytes; `assignment` has the replicas of each partition, the preferred leader first."""

    name: str
    id: bytes
    assignment: dict[int, list[int]]


class PartitionState(NamedTuple):
    """Who leads a partition (-1: nobody), since which leader epoch, and which replicas are in sync."""

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int


class TopicRegistry:
    """The topics in the tree. Reads come from memory, from any thread; changes call `done(error)` on the tree's thread.

    Whoever changes topics through the registry sees the change in it when `done` is called. A topic that cannot be
    read raises ValueError, or is named to `on_unreadable` and left alone: it is in `unreadable` then.
    """

    def __init__(self, tree: Tree, on_unreadable: Callable[[str, ValueError], None] | None = None) -> None:
        self._tree = tree
        self.unreadable: set[str] = set()
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._marked: dict[str, Topic] = {}
        for name in tree.children(paths.TOPICS):
            try:
                self._load(name)
            except ValueError as error:
                if on_unreadable is None:
                    raise
                self.unreadable.add(name)
                on_unreadable(name, error)

    # Reads.

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> list[str]:
        """Of all topics that are not being deleted."""
        return list(self._by_name)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._by_id.get(topic_id)
        return topic.name if topic is not None else None

    def marked(self) -> list[Topic]:
        """Topics that are being deleted: their logs have to go, and then `remove` them."""
        return list(self._marked.values())

    def state(self, name: str, partition: int) -> PartitionState | None:
        """None if there is no such partition; raises ValueError naming the path of a state that cannot be read."""
        path = paths.partition_state(name, partition)
        node = self._tree.find(path)
        if node is None:
            return None
        value = paths.from_json(node.data, path)
        try:
            numbers = (int(value[name]) for name in ("leader", "leader_epoch", "controller_epoch"))
            leader, leader_epoch, controller_epoch = numbers
            return PartitionState(leader, leader_epoch, [int(one) for one in value["isr"]], controller_epoch)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the metadata at {path} is not the state of a partition: {error!r}") from None

    def check_new(self, name: str) -> None:
        """KafkaError if no topic of this name can be made now."""
        validate_name(name)
        if name in self._marked:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted")
        if name in self._by_name:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        check_collision(name, self.names())

    # Changes.

    def create(
        self,
        name: str,
        assignment: Assignment,
        overrides: Mapping[str, str],
        done: Callable[[Topic | None, KafkaError | None], None],
        *,
        controller_epoch: int = 1,
        topic_id: bytes | None = None,
    ) -> None:
        """Makes a topic that `check_new` and `plan_topic` passed, led by each partition's first replica."""
        topic = Topic(
            name, topic_id or new_id(), {partition: list(replicas) for partition, replicas in assignment.items()}
        )
        config_exists = self._tree.exists(paths.config("topics", name))
        states = _first_states(topic.assignment, controller_epoch)
        operations = list(creation(topic, overrides, states, config_exists=config_exists))

        def made(_: list[Any] | None, error: TreeError | None) -> None:
            if error is not None:
                done(None, _as_kafka(error, name))
                return
            self._put(topic)
            done(topic, None)

        self._tree.submit(operations, made)

    def add_partitions(
        self,
        topic: Topic,
        added: Assignment,
        done: Callable[[Topic | None, KafkaError | None], None],
        *,
        controller_epoch: int = 1,
    ) -> None:
        """Adds partitions that `plan_more_partitions` made, to the topic as it was then (else REQUEST_TIMED_OUT)."""
        path = paths.topic(topic.name)
        node = self._tree.find(path)
        current = self._by_name.get(topic.name)
        if node is None or current is None:
            done(None, KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}"))
            return
        if current is not topic:
            done(None, _as_kafka(BadVersion(path, 0, node.version), topic.name))
            return
        new = _copied(added)
        grown = Topic(topic.name, topic.id, {**topic.assignment, **new})
        operations: list[Operation] = [Set(path, encode_topic(grown), node.version)]
        operations += _new_partitions(topic.name, _first_states(new, controller_epoch))

        def made(_: list[Any] | None, error: TreeError | None) -> None:
            if error is not None:
                done(None, _as_kafka(error, topic.name))
                return
            self._put(grown)
            done(grown, None)

        self._tree.submit(operations, made)

    def mark_deleted(self, name: str, done: Callable[[Topic | None, KafkaError | None], None]) -> None:
        """The first step of deletion: from `done` on the topic is gone for clients. Marking twice is no error."""
        topic = self._by_name.get(name) or self._marked.get(name)
        if topic is None:
            done(None, KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"))
            return

        def marked(_: list[Any] | None, error: TreeError | None) -> None:
            if error is not None and not isinstance(error, NodeExists):
                done(None, _as_kafka(error, name))
                return
            current = self._by_name.pop(name, None)
            if current is not None:
                self._by_id.pop(current.id, None)
                self._marked[name] = current
            done(current or topic, None)

        self._tree.submit([Create(f"{paths.DELETE_TOPICS}/{name}")], marked)

    def remove(self, name: str, done: Finished) -> None:
        """The last step of deletion, once the logs are out of the way."""
        doomed = [*self._tree.subtree(paths.topic(name)), *self._tree.subtree(paths.config("topics", name))]
        operations: list[Operation] = [Delete(path) for path in doomed]
        operations.append(Delete(f"{paths.DELETE_TOPICS}/{name}"))

        def removed(_: list[Any] | None, error: TreeError | None) -> None:
            if error is None:
                self._marked.pop(name, None)
            done(None if error is None else _as_kafka(error, name))

        self._tree.submit(operations, removed)

    def set_states(self, states: Mapping[tuple[str, int], PartitionState], done: Finished) -> None:
        """Writes the state of partitions, by (topic, partition), all or none."""
        operations = [
            Set(paths.partition_state(name, partition), _encode_state(state))
            for (name, partition), state in states.items()
        ]

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            done(None if error is None else _as_kafka(error, error.path))

        self._tree.submit(operations, written)

    # What others write.

    def read(self, name: str) -> Topic:
        """The topic as it is in the tree now; raises NoNode, or ValueError naming the path."""
        path = paths.topic(name)
        value = paths.from_json(self._tree.get(path).data, path)
        text = value.get("topic_id")
        try:
            assignment = {int(partition): list(replicas) for partition, replicas in value["partitions"].items()}
            return Topic(name, decode_id(text) if text else ZERO_ID, dict(sorted(assignment.items())))
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"the metadata at {path} is not that of a topic: {error}") from None

    def is_settled(self, topic: Topic, broker_id: int) -> bool:
        """Whether the topic has an id, and its partitions on this broker a state: `settle` has nothing to do."""
        return topic.id != ZERO_ID and all(
            broker_id not in replicas or self._tree.exists(paths.partition_state(topic.name, partition))
            for partition, replicas in topic.assignment.items()
        )

    def settle(
        self, name: str, broker_id: int, controller_epoch: int, done: Callable[[Topic | None, TreeError | None], None]
    ) -> None:
        """What a controller does for a topic that others have made or grown, and puts it among the topics.

        It gets an id, and the partitions that have no state yet and a replica on this broker are led by it.
        Raises as `read`.
        """
        path = paths.topic(name)
        node = self._tree.get(path)
        topic = self.read(name)
        operations: list[Operation] = []
        if topic.id == ZERO_ID:
            topic = topic._replace(id=new_id())
            operations.append(Set(path, encode_topic(topic), node.version))
        states = {
            partition: PartitionState(broker_id, 0, [broker_id], controller_epoch)
            for partition, replicas in topic.assignment.items()
            if broker_id in replicas and not self._tree.exists(paths.partition_state(name, partition))
        }
        if states and not self._tree.exists(paths.partitions(name)):
            operations.append(Create(paths.partitions(name)))
        operations += (
            operation
            for operation in _new_partitions(name, states)
            if not (isinstance(operation, Create) and self._tree.exists(operation.path))
        )

        def settled(_: list[Any] | None, error: TreeError | None) -> None:
            if error is None:
                self.unreadable.discard(name)
                self._put(topic)
            done(topic, error)

        if operations:
            self._tree.submit(operations, settled)
        else:
            settled(None, None)

    def _load(self, name: str) -> None:
        topic = self.read(name)
        if self._tree.exists(f"{paths.DELETE_TOPICS}/{name}"):
            self._marked[name] = topic
        else:
            self._put(topic)

    def _put(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        if topic.id != ZERO_ID:
            self._by_id[topic.id] = topic


def _copied(assignment: Assignment) -> dict[int, list[int]]:
    return {partition: list(replicas) for partition, replicas in assignment.items()}


def encode_topic(topic: Topic) -> bytes:
    """What a topic's node holds."""
    value = {
        "partitions": {str(partition): replicas for partition, replicas in topic.assignment.items()},
        "topic_id": encode_id(topic.id),
        "adding_replicas": {},
        "removing_replicas": {},
        "version": _TOPIC_VERSION,
    }
    if topic.id == ZERO_ID:
        del value["topic_id"]
    return paths.to_json(value)


def _encode_state(state: PartitionState) -> bytes:
    return paths.to_json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": _STATE_VERSION,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
        }
    )


def creation(
    topic: Topic,
    overrides: Mapping[str, str],
    states: Mapping[int, PartitionState],
    *,
    config_exists: bool = False,
) -> Iterator[Operation]:
    """The operations that make a topic whose partitions are in these states; `config_exists`: so does its config."""
    config_path = paths.config("topics", topic.name)
    config = encode_settings(overrides)
    yield Set(config_path, config) if config_exists else Create(config_path, config)
    yield Create(paths.topic(topic.name), encode_topic(topic))
    yield Create(paths.partitions(topic.name))
    yield from _new_partitions(topic.name, states)


def _first_states(assignment: Assignment, controller_epoch: int) -> dict[int, PartitionState]:
    """Of new partitions, each led by its first replica."""
    return {
        partition: PartitionState(replicas[0], 0, list(replicas), controller_epoch)
        for partition, replicas in assignment.items()
    }


def _new_partitions(name: str, states: Mapping[int, PartitionState]) -> Iterator[Operation]:
    for partition, state in states.items():
        yield Create(f"{paths.partitions(name)}/{partition}")
        yield Create(paths.partition_state(name, partition), _encode_state(state))


def _as_kafka(error: TreeError, name: str) -> KafkaError:
    if isinstance(error, NodeExists):
        return KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if isinstance(error, NoNode):
        return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if isinstance(error, BadVersion):
        return KafkaError(Errors.REQUEST_TIMED_OUT, f"topic {name} was changed at the same time; try again")
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")
