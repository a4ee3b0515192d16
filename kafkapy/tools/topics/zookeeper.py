"""The backend of `kafkapy topics --zookeeper`: topics are read and changed through their ZooKeeper nodes, without
asking a broker.

Running brokers watch the nodes and act on a change; if none runs, the next broker to start does. Creating a topic or
adding partitions needs a registered broker, because the assignment names the brokers that hold the replicas. Source:
Kafka 2.8's ZookeeperTopicService and AdminZkClient.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import TOPIC_KEYS, LogConfig, check_overrides
from kafkapy.metadata import paths
from kafkapy.metadata.configs import TOPICS, encode_settings
from kafkapy.metadata.ids import ZERO_ID, encode_id
from kafkapy.metadata.topic_nodes import Topic, encode_topic
from kafkapy.metadata.topic_rules import NOT_GIVEN, is_internal, plan_more_partitions, plan_topic
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import BadVersion, Create, Node, NodeExists, NoNode, Operation, Set, Tree
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.printable import printable
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.topics.interface import Document
from kafkapy.tools.zk.location import opened

_CHANGE_NOTIFICATION_VERSION = 2


@contextmanager
def open_topics(zookeeper: str, file: Path | None) -> Iterator[ZooKeeperTopics]:
    """Context manager that yields the backend for the topics of the cluster at --zookeeper; `file` is --command-config.

    Raises CallError for an invalid setting, ToolError for a node that cannot be read, and the errors of
    `zk.location.opened`.
    """
    with opened(zookeeper, None, file, paths.TOP_LEVEL) as tree:
        if not tree.exists(paths.TOPICS) or not tree.exists(paths.BROKER_IDS):
            raise ToolError(
                f"ZooKeeper at {zookeeper} has no {paths.TOPICS}: is the chroot of the cluster missing, as "
                "in HOST:2181/kafka?"
            )
        try:
            yield ZooKeeperTopics(tree)
        except ConfigError as error:
            raise CallError(f"--config {error}") from error
        except ValueError as error:  # its text names the node
            raise ToolError(str(error)) from error


class ZooKeeperTopics:
    """A TopicBackend that works on the metadata tree in ZooKeeper, which the brokers share. Methods also raise
    ConfigError for a setting that topics do not have or a value out of range, and ValueError for a node that cannot be
    read."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._registry = TopicRegistry(tree, lambda name, error: None)

    def summaries(self) -> list[Document]:
        return self._each_readable(self._summary)

    def descriptions(self, names: Sequence[str], *, with_offsets: bool) -> list[Document]:
        return [self._description(name) for name in names] if names else self._each_readable(self._description)

    def live_brokers(self) -> frozenset[int]:
        return frozenset(self._broker_ids())

    def min_isr(self, name: str) -> int:
        raise CallError("--under-min-isr-partitions needs --bootstrap-server: only brokers know their settings")

    def create(
        self,
        name: str,
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None = None,
        *,
        validate_only: bool,
    ) -> int:
        """Write the nodes of a new topic, and return its number of partitions. The controller then chooses the topic id
        and the leaders."""
        if assignment is None and NOT_GIVEN in (partitions, replicas):
            raise CallError(
                "topics create --zookeeper needs --partitions and --replication-factor: it knows no broker's defaults"
            )
        self._registry.check_new(name)
        if self._tree.exists(paths.topic(name)):
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists, though it cannot be read")
        check_overrides(LogConfig(), settings)
        planned = plan_topic(
            self._brokers(),
            partitions,
            replicas,
            assignment,
            default_partitions=partitions,
            default_replication=replicas,
        )
        if not validate_only:
            node = Create(paths.topic(name), encode_topic(Topic(name, ZERO_ID, planned)))
            try:
                self._tree.commit([self._write_settings(name, settings), node])
            except NodeExists:
                raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists") from None
        return len(planned)

    def alter_settings(self, name: str, changes: Mapping[str, str], removed: Sequence[str]) -> None:
        path = paths.config(TOPICS, name)
        while True:
            self._read(name)
            node = self._tree.find(path)
            settings = {**_settings_in(node, path), **changes}
            for key in removed:
                settings.pop(key, None)
            known = {key: text for key, text in settings.items() if key in TOPIC_KEYS or key in changes}
            check_overrides(LogConfig(), known)
            data = encode_settings(settings)
            steps: list[Operation] = [Create(path, data) if node is None else Set(path, data, node.version)]
            if self._tree.exists(paths.CONFIG_CHANGES):
                value = {"version": _CHANGE_NOTIFICATION_VERSION, "entity_path": f"{TOPICS}/{name}"}
                steps.append(Create(f"{paths.CONFIG_CHANGES}/config_change_", paths.to_json(value), sequence=True))
            try:
                self._tree.commit(steps)
            except (BadVersion, NodeExists, NoNode):
                if self._tree.find(path) == node:  # such as a node that the login may not read
                    raise
                continue  # a broker or another tool has written the node since it was read: read it again
            return

    def add_partitions(self, name: str, count: int) -> None:
        if is_internal(name):
            raise KafkaError(Errors.INVALID_REQUEST, f"topic {name} is internal: its partitions cannot be changed")
        path = paths.topic(name)
        while True:
            topic = self._read(name)
            node = self._tree.get(path)
            value = paths.from_json(node.data, path)
            if self._is_marked(name):
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} is being deleted")
            if value.get("adding_replicas") or value.get("removing_replicas") or self._is_moving(name):
                raise KafkaError(Errors.REASSIGNMENT_IN_PROGRESS, f"partitions of topic {name} are being moved: wait")
            grown = {**topic.assignment, **plan_more_partitions(name, topic.assignment, self._brokers(), count, None)}
            value["partitions"] = {str(partition): replicas for partition, replicas in grown.items()}
            try:
                self._tree.commit([Set(path, paths.to_json(value), node.version)])
            except BadVersion:
                continue  # the controller or another tool has written the node since it was read: read it again
            return

    def delete(self, name: str) -> str:
        """Mark a topic for deletion, and return a sentence that says so. The controller deletes the topic."""
        if not self._tree.exists(paths.topic(name)):
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if is_internal(name):
            raise KafkaError(Errors.INVALID_REQUEST, f"topic {name} is internal: it cannot be deleted")
        self._tree.ensure(paths.DELETE_TOPICS)
        already = ""
        try:
            self._tree.commit([Create(paths.deletion_mark(name))])
        except NodeExists:
            already = " already"
        when = "the controller deletes it" if self._broker_ids() else "it is deleted once a broker runs"
        return f"Topic {name} is marked for deletion{already}: {when}."

    def _each_readable(self, document: Callable[[str], Document]) -> list[Document]:
        """Return `document(name)` for every topic. A topic whose nodes cannot be read is left out, and named on
        standard error."""
        found = []
        for name in self._tree.children(paths.TOPICS):
            try:
                found.append(document(name))
            except ValueError as error:
                print(printable(f"kafkapy: topic {name} is left out: {error}."), file=sys.stderr)
        return found

    def _summary(self, name: str) -> Document:
        topic = self._read(name)
        return {
            "name": name,
            "id": "" if topic.id == ZERO_ID else encode_id(topic.id),
            "internal": is_internal(name),
            "partitionCount": len(topic.assignment),
            "replicationFactor": max(map(len, topic.assignment.values()), default=0),
            "markedForDeletion": self._is_marked(name),
        }

    def _description(self, name: str) -> Document:
        partitions = []
        for partition, replicas in self._read(name).assignment.items():
            state = self._registry.state(name, partition)
            partitions.append(
                {
                    "partition": partition,
                    "leader": state.leader if state is not None and state.leader >= 0 else None,
                    "leaderEpoch": state.leader_epoch if state is not None else None,
                    "replicas": replicas,
                    "isr": state.isr if state is not None else [],
                }
            )
        return {**self._summary(name), "configs": self._settings(name), "partitions": partitions}

    def _read(self, name: str) -> Topic:
        """Return the named topic with its partition assignment. Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION) if it
        does not exist."""
        if not self._tree.exists(paths.topic(name)):
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return self._registry.read(name)

    def _settings(self, name: str) -> dict[str, str]:
        path = paths.config(TOPICS, name)
        return _settings_in(self._tree.find(path), path)

    def _write_settings(self, name: str, settings: Mapping[str, str]) -> Operation:
        path = paths.config(TOPICS, name)
        data = encode_settings(settings)
        return Set(path, data) if self._tree.exists(path) else Create(path, data)

    def _is_marked(self, name: str) -> bool:
        return self._tree.exists(paths.deletion_mark(name))

    def _is_moving(self, name: str) -> bool:
        node = self._tree.find(paths.REASSIGNMENT)
        asked = paths.from_json(node.data, paths.REASSIGNMENT).get("partitions") if node is not None else None
        return any(isinstance(one, dict) and one.get("topic") == name for one in asked or ())

    def _broker_ids(self) -> list[int]:
        return sorted(int(name) for name in self._tree.children(paths.BROKER_IDS) if name.isdecimal())

    def _brokers(self) -> list[int]:
        """Return the ids of the registered brokers. Raises KafkaError (BROKER_NOT_AVAILABLE) if there are none."""
        found = self._broker_ids()
        if not found:
            raise KafkaError(
                Errors.BROKER_NOT_AVAILABLE,
                "no broker is registered in ZooKeeper, so replicas cannot be assigned: start one first",
            )
        return found


def _settings_in(node: Node | None, path: str) -> dict[str, str]:
    value = paths.from_json(node.data, path).get("config", {}) if node is not None else {}
    if not isinstance(value, dict):
        raise ValueError(f"the metadata at {path} has no settings by name")
    return {str(key): str(text) for key, text in value.items()}
