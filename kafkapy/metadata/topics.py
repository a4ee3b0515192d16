"""The topics: names, ids, where their partitions are, and who leads them.

A topic is `/brokers/topics/NAME` with its id and assignment; each partition has a state node with leader,
leader epoch and in-sync replicas. A topic is deleted in two steps, as in Kafka: it is marked (and gone for
clients), its logs are removed, then its nodes. A crash between the steps leaves the mark, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.ids import ZERO_ID, new_id
from kafkapy.metadata.known_topics import KnownTopics
from kafkapy.metadata.office import Office, out_of_office
from kafkapy.metadata.topic_nodes import (
    PartitionState,
    Topic,
    creation,
    encode_state,
    encode_topic,
    first_states,
    new_partitions,
)
from kafkapy.metadata.topic_rules import (
    Assignment,
    is_internal,
    plan_more_partitions,
    plan_topic,
    validate_name,
)
from kafkapy.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
    TreeError,
)

__all__ = [
    "PartitionState",
    "Topic",
    "TopicRegistry",
    "is_internal",
    "plan_more_partitions",
    "plan_topic",
    "validate_name",
]

# Somebody else may write into a topic's nodes while they are removed; each try finds what is there then.
_REMOVAL_TRIES = 5

Finished = Callable[["KafkaError | None"], None]


class TopicRegistry(KnownTopics):
    """The topics and their changes, which call `done(error)` on the tree's thread.

    Whoever changes topics through the registry sees the change in it when `done` is called. Changes are those of a
    controller: in an `office` that is over they fail with NOT_CONTROLLER.
    """

    def __init__(
        self,
        tree: Tree,
        on_unreadable: Callable[[str, ValueError], None] | None = None,
        office: Office | None = None,
    ) -> None:
        super().__init__(tree, on_unreadable)
        self._office = Office(tree) if office is None else office

    @property
    def controller_epoch(self) -> int:
        """What partition states are written with."""
        return self._office.epoch

    # Changes.

    def create(
        self,
        name: str,
        assignment: Assignment,
        overrides: Mapping[str, str],
        done: Callable[[Topic | None, KafkaError | None], None],
        *,
        topic_id: bytes | None = None,
    ) -> None:
        """Makes a topic that `check_new` and `plan_topic` passed, led by each partition's first replica."""
        topic = Topic(name, topic_id or new_id(), _copied(assignment))
        config_exists = self._tree.exists(paths.config("topics", name))
        states = first_states(topic.assignment, self._office.epoch)
        self._put_when_made(topic, creation(topic, overrides, states, config_exists=config_exists), done)

    def add_partitions(
        self, topic: Topic, added: Assignment, done: Callable[[Topic | None, KafkaError | None], None]
    ) -> None:
        """Adds partitions that `plan_more_partitions` made, to the topic as it was then (else REQUEST_TIMED_OUT)."""
        new = _copied(added)
        grown = topic._replace(assignment={**topic.assignment, **new})
        states = first_states(new, self._office.epoch)
        self._replace(topic, grown, new_partitions(topic.name, states), done)

    def reassign(
        self,
        topic: Topic,
        changed: Topic,
        states: Mapping[int, PartitionState],
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        """Other replicas, and with them these states, of partitions of the topic as it was then."""
        operations = [
            Set(paths.partition_state(topic.name, partition), encode_state(state))
            for partition, state in states.items()
        ]
        self._replace(topic, changed, operations, done)

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

        self._tree.submit(self._office.fenced([Create(f"{paths.DELETE_TOPICS}/{name}")]), marked)

    def remove(self, name: str, done: Finished) -> None:
        """The last step of deletion, once the logs are out of the way."""
        self._remove(name, done, _REMOVAL_TRIES)

    def _remove(self, name: str, done: Finished, tries: int) -> None:
        mark = f"{paths.DELETE_TOPICS}/{name}"
        doomed = [*self._tree.subtree(paths.topic(name)), *self._tree.subtree(paths.config("topics", name)), mark]

        def removed(error: TreeError | None) -> None:
            if isinstance(error, NoNode | NotEmpty) and error.path != mark and tries > 1:
                self._remove(name, done, tries - 1)
                return
            if isinstance(error, NoNode) and name in self._marked:
                error = None  # another controller was faster; what has the name now is another topic
            if error is None:
                self._marked.pop(name, None)
            done(None if error is None else _as_kafka(error, name))

        self._submit([Delete(path) for path in doomed], removed, only_if=[Check(mark)])

    def set_states(self, states: Mapping[tuple[str, int], PartitionState], done: Finished) -> None:
        """Writes the state of partitions, by (topic, partition), all or none."""
        operations = [
            Set(paths.partition_state(name, partition), encode_state(state))
            for (name, partition), state in states.items()
        ]

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            done(None if error is None else _as_kafka(error, error.path))

        self._tree.submit(self._office.fenced(operations), written)

    # What others write.

    def settle(
        self,
        name: str,
        broker_id: int,
        next_epoch: Callable[[str, int], int],
        done: Callable[[Topic | None, TreeError | KafkaError | None], None],
    ) -> None:
        """What a controller does for a topic that others have made or grown, and puts it among the topics.

        It gets an id, and the partitions that have no state and a replica on this broker are led by it, in the epoch
        `next_epoch(topic, partition)`. Raises as `read`.
        """
        path = paths.topic(name)
        node = self._tree.get(path)
        topic = self.read(name)
        operations: list[Operation] = []
        if topic.id == ZERO_ID:
            topic = topic._replace(id=new_id())
            operations.append(Set(path, encode_topic(topic), node.version))
        states = {
            partition: PartitionState(broker_id, next_epoch(name, partition), [broker_id], self._office.epoch)
            for partition in self.stateless(topic, broker_id)
        }
        if states and not self._tree.exists(paths.partitions(name)):
            operations.append(Create(paths.partitions(name)))
        operations += (
            operation
            for operation in new_partitions(name, states)
            if not (isinstance(operation, Create) and self._tree.exists(operation.path))
        )

        def settled(error: TreeError | None) -> None:
            if error is None:
                self.unreadable.discard(name)
                self._put(topic)
            done(topic, None if error is None else out_of_office(error) or error)

        if operations:
            self._submit(operations, settled)
        else:
            settled(None)

    def _replace(
        self,
        topic: Topic,
        changed: Topic,
        below: Iterable[Operation],
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        """Writes a topic's node anew, with changes below it, if the topic is still what it was."""
        path = paths.topic(topic.name)
        node = self._tree.find(path)
        current = self._by_name.get(topic.name)
        if node is None or current is None:
            done(None, KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}"))
        elif current is not topic:
            done(None, _as_kafka(BadVersion(path, 0, node.version), topic.name))
        else:
            self._put_when_made(changed, [Set(path, encode_topic(changed), node.version), *below], done)

    def _put_when_made(
        self,
        topic: Topic,
        operations: Iterable[Operation],
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        def made(error: TreeError | None) -> None:
            if error is not None:
                done(None, _as_kafka(error, topic.name))
                return
            self._put(topic)
            done(topic, None)

        self._submit(operations, made)

    def _submit(
        self,
        operations: Iterable[Operation],
        done: Callable[[TreeError | None], None],
        only_if: Sequence[Check] = (),
    ) -> None:
        """One change, or as few as the tree's home takes, each made only if that holds. What a crash between them
        leaves, `settle` or the next `remove` finishes: a topic's node comes first and goes last."""
        parts = self._tree.in_changes(list(operations))
        changes = [self._office.fenced([*only_if, *part]) for part in parts]
        self._tree.submit_in_order(changes, done)


def _copied(assignment: Assignment) -> dict[int, list[int]]:
    return {partition: list(replicas) for partition, replicas in assignment.items()}


def _as_kafka(error: TreeError, name: str) -> KafkaError:
    if (moved := out_of_office(error)) is not None:
        return moved
    if isinstance(error, NodeExists):
        return KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if isinstance(error, NoNode):
        return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if isinstance(error, BadVersion):
        return KafkaError(Errors.REQUEST_TIMED_OUT, f"topic {name} was changed at the same time; try again")
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")
