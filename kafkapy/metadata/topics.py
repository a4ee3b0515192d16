"""The registry of topics: their names, topic ids, partition assignments and partition states, and the changes of them.

A topic is a node `/brokers/topics/NAME` with its topic id and assignment. Each partition has a state node with leader,
leader epoch and ISR. As in Kafka, a topic is deleted in two steps: first the topic is marked as deleted, which hides it
from clients; then its logs and nodes are deleted. After a crash between the two steps, the mark is still there and the
deletion is continued, unless delete.topic.enable is false by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import ControllerFence, not_controller_error
from kafkapy.metadata.ids import ZERO_ID, new_id
from kafkapy.metadata.known_topics import KnownTopics
from kafkapy.metadata.topic_nodes import (
    PartitionState,
    Topic,
    creation,
    decode_topic,
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
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
    TreeError,
    TreeUnreachable,
    wait,
)

__all__ = [
    "PartitionState",
    "Topic",
    "TopicRegistry",
    "is_gone",
    "is_internal",
    "look_if_gone",
    "plan_more_partitions",
    "plan_topic",
    "validate_name",
]

# How often to try to remove a topic's nodes, to which other processes may add nodes meanwhile.
_REMOVAL_TRIES = 5

Finished = Callable[["KafkaError | None"], None]


class TopicRegistry(KnownTopics):
    """The topics in the metadata tree, and the changes of topics. Each change calls `done` on the thread of the
    metadata tree, with None or the error as its last argument.

    When `done` is called, the registry shows the change. On a broker that is not the controller the registry is empty.
    The changes are those of a controller: once this broker is no longer the controller, `fence` makes them fail with
    NOT_CONTROLLER.
    """

    def __init__(
        self,
        tree: Tree,
        on_unreadable: Callable[[str, ValueError], None] | None = None,
        fence: ControllerFence | None = None,
    ) -> None:
        super().__init__(tree, on_unreadable)
        self._fence = ControllerFence(tree) if fence is None else fence

    @property
    def controller_epoch(self) -> int:
        """The controller epoch to write into partition states."""
        return self._fence.epoch

    # Changes.

    def create(
        self,
        name: str,
        assignment: Assignment,
        overrides: Mapping[str, str],
        done: Callable[[Topic | None, KafkaError | None], None],
        *,
        topic_id: bytes | None = None,
        states: Mapping[int, PartitionState] | None = None,
    ) -> None:
        """Create a topic that `check_new` and `plan_topic` have accepted, then call `done(topic, None)` or `done(None,
        error)`.

        `overrides` are the topic's configuration. The topic gets a random topic id unless `topic_id` is given. `states`
        are the states of its partitions; by default the first replica of each leads, and all are in sync.
        """
        topic = Topic(name, topic_id or new_id(), _copied(assignment))
        config_exists = self._tree.exists(paths.config("topics", name))
        if states is None:
            states = first_states(topic.assignment, self._fence.epoch)
        self._put_after(topic, creation(topic, overrides, states, config_exists=config_exists), done)

    def add_partitions(
        self,
        topic: Topic,
        added: Assignment,
        done: Callable[[Topic | None, KafkaError | None], None],
        *,
        states: Mapping[int, PartitionState] | None = None,
    ) -> None:
        """Add the partitions in `added`, which `plan_more_partitions` has planned, to the topic. Call `done(topic,
        None)` with the new topic or `done(None, error)`. `states` are as in `create`.

        The error is NOT_CONTROLLER, which makes clients retry, if the topic was changed since it was read.
        """
        new = _copied(added)
        grown = topic._replace(assignment={**topic.assignment, **new})
        if states is None:
            states = first_states(new, self._fence.epoch)
        self._replace(topic, grown, new_partitions(topic.name, states), done)

    def reassign(
        self,
        topic: Topic,
        changed: Topic,
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        """Replace the topic by `changed`, which has another assignment. Call `done(changed, None)` or `done(None,
        error)`.

        The error is NOT_CONTROLLER, which makes clients retry, if the topic was changed since it was read.
        """
        self._replace(topic, changed, [], done)

    def mark_deleted(self, name: str, done: Callable[[Topic | None, KafkaError | None], None]) -> None:
        """Mark a topic as deleted and call `done(topic, None)` or `done(None, error)`. From then on, the topic is
        hidden from clients. It is no error if the topic is already marked."""
        topic = self._by_name.get(name) or self._marked.get(name)
        if topic is None:
            done(None, KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"))
            return

        def marked(_: list[Any] | None, error: TreeError | None) -> None:
            if error is not None and not isinstance(error, NodeExists):
                done(None, _as_kafka(error, name))
                return
            current = self._by_name.get(name)
            if current is not None:
                # In this order: a thread that sees the mark in the tree must find the topic in one of the two, or it
                # would take the mark for one of a topic that does not exist, and remove it.
                self._marked[name] = current
                self._by_id.pop(current.id, None)
                self._by_name.pop(name, None)
            done(current or topic, None)

        self._tree.submit(self._fence.fenced([Create(paths.deletion_mark(name))]), marked)

    def unmark(self) -> None:
        """Remove the marks of all topics that are marked as deleted, so that these topics exist again. Blocks. Raises
        TreeError, and KafkaError NOT_CONTROLLER."""
        for topic in self.marked():
            self._fence.discard(paths.deletion_mark(topic.name))
            self._put(topic)  # first: see `mark_deleted`
            del self._marked[topic.name]

    def remove(self, name: str, done: Finished) -> None:
        """Delete the nodes of a topic that is marked as deleted, and the mark. The topic's logs must have been deleted
        before. Call `done` with None or the error."""
        self._remove(name, done, _REMOVAL_TRIES)

    def _remove(self, name: str, done: Finished, tries: int) -> None:
        mark = paths.deletion_mark(name)
        nodes = [*self._tree.subtree(paths.topic(name)), *self._tree.subtree(paths.config("topics", name)), mark]

        def removed(error: TreeError | None) -> None:
            if isinstance(error, NoNode | NotEmpty) and error.path != mark and tries > 1:
                self._remove(name, done, tries - 1)
                return
            if isinstance(error, NoNode) and name in self._marked:
                error = None  # another controller removed it; a topic of this name is a new one
            if error is None:
                self._marked.pop(name, None)
            done(None if error is None else _as_kafka(error, name))

        self._submit([Delete(path) for path in nodes], removed, checks=[Check(mark)])

    def set_states(
        self,
        states: Mapping[tuple[str, int], PartitionState],
        done: Finished,
        *,
        versions: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Write the states of partitions, by (topic name, partition), all or none. Call `done` with None or the error.

        `versions` has the version of each state that is replaced: the whole change fails if another program has written
        one of the states meanwhile.
        """
        operations = [
            Set(
                paths.partition_state(name, partition),
                encode_state(state),
                ANY_VERSION if versions is None else versions[name, partition],
            )
            for (name, partition), state in states.items()
        ]

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            done(None if error is None else _as_kafka(error, error.path))

        self._tree.submit(self._fence.fenced(operations), written)

    def add_states(
        self,
        topic: Topic,
        states: Mapping[int, PartitionState],
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        """Write the first states of partitions of a topic, and the nodes above them that do not exist. Call
        `done(topic, None)` or `done(None, error)`.
        """
        name = topic.name
        operations: list[Operation] = []
        if not self._tree.exists(paths.partitions(name)):
            operations.append(Create(paths.partitions(name)))
        operations += (
            operation
            for operation in new_partitions(name, states)
            if not (isinstance(operation, Create) and self._tree.exists(operation.path))
        )

        def written(error: TreeError | None) -> None:
            done(None if error is not None else topic, None if error is None else _as_kafka(error, name))

        self._submit(operations, written)

    # Topics created by tools and other brokers.

    def complete_topic(self, name: str, done: Callable[[Topic | None, TreeError | KafkaError | None], None]) -> None:
        """Add a topic that another program has created or extended to the registry. Call `done(topic, error)`, where
        the error may be None.

        A topic without a topic id gets one; if an old tool has dropped the id (KAFKA-14190), it gets the id back.
        Raises NoNode or ValueError if the topic's node is missing or cannot be decoded.
        """
        path = paths.topic(name)
        node = self._tree.get(path)
        topic = self.read(name)
        operations: list[Operation] = []
        if topic.id == ZERO_ID:
            known = self._by_name.get(name)
            topic = topic._replace(id=new_id() if known is None or known.id == ZERO_ID else known.id)
            operations.append(Set(path, encode_topic(topic), node.version))

        def completed(error: TreeError | None) -> None:
            if error is None:
                self.unreadable.discard(name)
                self._put(topic)
            done(topic, None if error is None else not_controller_error(error) or error)

        if operations:
            self._submit(operations, completed)
        else:
            completed(None)

    def _replace(
        self,
        topic: Topic,
        changed: Topic,
        below: Iterable[Operation],
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        """Replace the topic's node by that of `changed` and apply the operations `below` in the same change. The change
        fails if the topic was changed since it was read."""
        path = paths.topic(topic.name)
        node = self._tree.find(path)
        current = self._by_name.get(topic.name)
        if node is None or current is None:
            done(None, KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}"))
        elif current is not topic:
            done(None, _as_kafka(BadVersion(path, 0, node.version), topic.name))
        else:
            self._put_after(changed, [Set(path, encode_topic(changed), node.version), *below], done)

    def _put_after(
        self,
        topic: Topic,
        operations: Iterable[Operation],
        done: Callable[[Topic | None, KafkaError | None], None],
    ) -> None:
        def submitted(error: TreeError | None) -> None:
            if error is not None:
                done(None, _as_kafka(error, topic.name))
                return
            self._put(topic)
            done(topic, None)

        self._submit(operations, submitted)

    def _submit(
        self,
        operations: Iterable[Operation],
        done: Callable[[TreeError | None], None],
        checks: Sequence[Check] = (),
    ) -> None:
        """Apply the operations in as few changes as possible. Each change contains the checks and the check that this
        broker is still the controller.

        If the broker crashes between two changes, `complete_topic` or the next `remove` finishes the work, because a
        topic's node is created first and deleted last.
        """
        parts = self._tree.split_into_changes(list(operations))
        changes = [self._fence.fenced([*checks, *part]) for part in parts]
        self._tree.submit_in_order(changes, done)


def is_gone(tree: Tree, name: str, topic_id: bytes) -> bool:
    """Return True if the metadata tree says that the topic with this id is deleted, or is being deleted. False if the
    topic's node cannot be decoded. Only for the controller, whose tree has the topics in memory.
    """
    return _is_gone(tree.find(paths.topic(name)), tree.find(paths.deletion_mark(name)), name, topic_id)


def look_if_gone(tree: Tree, name: str, topic_id: bytes) -> bool:
    """Return the same as `is_gone`, on any broker. Blocks; raises TreeError."""
    node, mark = wait(tree.read_through, [paths.topic(name), paths.deletion_mark(name)])
    return _is_gone(node, mark, name, topic_id)


def _is_gone(node: Node | None, mark: Node | None, name: str, topic_id: bytes) -> bool:
    if node is None or mark is not None:
        return True
    try:
        present = decode_topic(name, node.data).id
    except ValueError:
        return False
    return ZERO_ID not in (present, topic_id) and present != topic_id


def _copied(assignment: Assignment) -> dict[int, list[int]]:
    return {partition: list(replicas) for partition, replicas in assignment.items()}


def _as_kafka(error: TreeError, name: str) -> KafkaError:
    if (moved := not_controller_error(error)) is not None:
        return moved
    if isinstance(error, NodeExists):
        return KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if isinstance(error, NoNode):
        return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if isinstance(error, BadVersion | TreeUnreachable):
        # A retriable failure. Kafka's handler would wait for ZooKeeper until the client gives up. Here, NOT_CONTROLLER
        # makes clients find the controller and retry; it may also be true, if our session has expired. librdkafka takes
        # REQUEST_TIMED_OUT to mean that the change is being carried out, so it would not retry.
        raced = f"topic {name} was changed at the same time; try again"
        why = raced if isinstance(error, BadVersion) else f"the metadata could not be changed: {error}"
        retriable = KafkaError(Errors.NOT_CONTROLLER, why)
        retriable.__cause__ = error
        return retriable
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")
