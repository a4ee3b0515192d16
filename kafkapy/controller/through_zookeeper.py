"""Topics changed by their nodes alone, as Kafka's tools did up to 2.8: nobody has to be asked, nor even to run.

The brokers see what was written and take it up; if none runs, the next one to start does. A new topic or partition
needs to know on which brokers it is to live, so those are made only while a broker is registered.
Source: Kafka 2.8's ZookeeperTopicService and AdminZkClient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import TOPIC_KEYS, LogConfig
from kafkapy.metadata import paths
from kafkapy.metadata.configs import TOPICS, encode_settings
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.topic_nodes import Topic, encode_topic
from kafkapy.metadata.topic_rules import is_internal, plan_more_partitions, plan_topic
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import BadVersion, Create, NodeExists, Operation, Set, Tree

_NOTE_VERSION = 2


class TopicNodes:
    """The topics in a tree that brokers share. Everything waits; what is refused raises KafkaError, and a node that
    cannot be read ValueError, which names it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._registry = TopicRegistry(tree, lambda name, error: None)

    def names(self) -> list[str]:
        """All of them, also those that are marked for deletion."""
        return self._tree.children(paths.TOPICS)

    def is_marked(self, name: str) -> bool:
        """Whether a broker is to delete it."""
        return self._tree.exists(f"{paths.DELETE_TOPICS}/{name}")

    def get(self, name: str) -> Topic:
        """UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        if not self._tree.exists(paths.topic(name)):
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return self._registry.read(name)

    def settings(self, name: str) -> dict[str, str]:
        """The topic's own."""
        path = paths.config(TOPICS, name)
        node = self._tree.find(path)
        value = paths.from_json(node.data, path).get("config", {}) if node is not None else {}
        if not isinstance(value, dict):
            raise ValueError(f"the metadata at {path} has no settings by name")
        return {str(key): str(text) for key, text in value.items()}

    def plan(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> dict[int, list[int]]:
        """The replicas that a new topic would have."""
        self._registry.check_new(name)
        if self._tree.exists(paths.topic(name)):
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists, though it cannot be read")
        LogConfig.from_overrides(LogConfig(), settings)
        return plan_topic(
            self._brokers(), partitions, replicas, None, default_partitions=partitions, default_replication=replicas
        )

    def create(self, name: str, assignment: Mapping[int, Sequence[int]], settings: Mapping[str, str]) -> None:
        """Makes a topic that `plan` has planned. Its id and its leaders are the controller's to choose."""
        topic = Topic(name, ZERO_ID, {partition: list(replicas) for partition, replicas in assignment.items()})
        try:
            self._tree.commit([self._write(name, settings), Create(paths.topic(name), encode_topic(topic))])
        except NodeExists:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists") from None

    def add_partitions(self, name: str, count: int) -> None:
        """Brings the topic to `count` partitions."""
        if is_internal(name):
            raise KafkaError(
                Errors.INVALID_REQUEST, f"{name} is the brokers' own; its partitions are not to be changed"
            )
        path = paths.topic(name)
        while True:
            topic = self.get(name)
            node = self._tree.get(path)
            value = paths.from_json(node.data, path)
            if self.is_marked(name):
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} is being deleted")
            if value.get("adding_replicas") or value.get("removing_replicas") or self._is_moving(name):
                raise KafkaError(Errors.REASSIGNMENT_IN_PROGRESS, f"partitions of topic {name} are being moved: wait")
            grown = {**topic.assignment, **plan_more_partitions(name, topic.assignment, self._brokers(), count, None)}
            value["partitions"] = {str(partition): replicas for partition, replicas in grown.items()}
            try:
                self._tree.commit([Set(path, paths.to_json(value), node.version)])
            except BadVersion:
                continue  # the controller has given it its id, or another tool was faster: look again
            return

    def change_settings(self, name: str, changes: Mapping[str, str], removed: Sequence[str]) -> None:
        """Sets these and takes those back, all or none. Raises ConfigError for what no topic can be set to."""
        self.get(name)
        settings = {**self.settings(name), **changes}
        for key in removed:
            settings.pop(key, None)
        known = {key: text for key, text in settings.items() if key in TOPIC_KEYS or key in changes}
        LogConfig.from_overrides(LogConfig(), known)
        steps: list[Operation] = [self._write(name, settings)]
        if self._tree.exists(paths.CONFIG_CHANGES):
            note = paths.to_json({"version": _NOTE_VERSION, "entity_path": f"{TOPICS}/{name}"})
            steps.append(Create(f"{paths.CONFIG_CHANGES}/config_change_", note, sequence=True))
        self._tree.commit(steps)

    def mark_deleted(self, name: str) -> bool:
        """Asks the controller to delete it; whether nobody had asked before."""
        if not self._tree.exists(paths.topic(name)):
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if is_internal(name):
            raise KafkaError(Errors.INVALID_REQUEST, f"{name} is the brokers' own, and is not to be deleted")
        self._tree.ensure(paths.DELETE_TOPICS)
        try:
            self._tree.commit([Create(f"{paths.DELETE_TOPICS}/{name}")])
        except NodeExists:
            return False
        return True

    def described(self, name: str) -> list[dict[str, Any]]:
        """Its partitions: number, leader, leader epoch, replicas and those in sync."""
        found = []
        for partition, replicas in self.get(name).assignment.items():
            state = self._registry.state(name, partition)
            led = state is not None and state.leader >= 0
            found.append(
                {
                    "partition": partition,
                    "leader": state.leader if state is not None and led else None,
                    "leaderEpoch": state.leader_epoch if state is not None else None,
                    "replicas": replicas,
                    "isr": state.isr if state is not None else [],
                }
            )
        return found

    def brokers(self) -> list[int]:
        """Those that are registered."""
        return sorted(int(name) for name in self._tree.children(paths.BROKER_IDS) if name.isdecimal())

    def _brokers(self) -> list[int]:
        found = self.brokers()
        if not found:
            raise KafkaError(
                Errors.BROKER_NOT_AVAILABLE,
                "no broker is registered in ZooKeeper, so there is none to give partitions to: start one first",
            )
        return found

    def _write(self, name: str, settings: Mapping[str, str]) -> Operation:
        path = paths.config(TOPICS, name)
        data = encode_settings(settings)
        return Set(path, data) if self._tree.exists(path) else Create(path, data)

    def _is_moving(self, name: str) -> bool:
        node = self._tree.find(paths.REASSIGNMENT)
        asked = paths.from_json(node.data, paths.REASSIGNMENT).get("partitions") if node is not None else None
        return any(isinstance(one, dict) and one.get("topic") == name for one in asked or ())
