"""Elections and reassignments that old tools ask for by a node in `/admin` (before Kafka 2.4 there was no other way).

With one broker there is little to choose: it leads what it can, and replicas can only be moved to where they are. A
request is answered by its node going away, as with Kafka; what is refused in AlterPartitionReassignments is refused
here too, in the log (Kafka looks at such a node less closely, and would wait for a broker that never comes). Source:
KafkaController's PreferredReplicaLeaderElection and ZkPartitionReassignment.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkapy.controller.topic_changes import TopicController
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.office import Office
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Tree

log = logging.getLogger("kafkapy.controller.outside")


class AdminRequests:
    """Waits for the tree: not for callbacks. Raises TreeError, KafkaError NOT_CONTROLLER."""

    def __init__(self, tree: Tree, office: Office, topics: TopicRegistry, controller: TopicController) -> None:
        self._tree = tree
        self._office = office
        self._topics = topics
        self._controller = controller

    def look(self, path: str) -> None:
        """Answers the request at `path`, if there is one."""
        node = self._tree.find(path)
        if node is None:
            return
        try:
            for asked in _partitions(node.data, path):
                self._answer(path, asked)
        except ValueError as error:
            log.error("%s; it is thrown away", error)
        self._office.discard(path)

    def _answer(self, path: str, asked: Any) -> None:
        name, index = asked["topic"], asked["partition"]
        if path == paths.REASSIGNMENT:
            try:
                self._controller.reassign(name, index, asked["replicas"])
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:
                    raise
                log.error("%s asks for %s-%s to be moved: %s", path, name, index, error.message)
            return
        topic = self._topics.get(name)
        if topic is None or index not in topic.assignment:
            log.warning("%s names %s-%s, and there is no such partition", path, name, index)
        else:
            log.info("%s-%d has the leader that it can have", name, index)


def _partitions(data: bytes, path: str) -> list[dict[str, Any]]:
    """What is asked for; ValueError names the path."""
    asked = paths.from_json(data, path).get("partitions")
    if not isinstance(asked, list) or not all(
        isinstance(one, dict) and isinstance(one.get("topic"), str) and isinstance(one.get("partition"), int)
        for one in asked
    ):
        raise ValueError(f"the request at {path} has no list of partitions")
    if path == paths.REASSIGNMENT and not all(_are_brokers(one.get("replicas")) for one in asked):
        raise ValueError(f"the request at {path} does not say to which replicas")
    return asked


def _are_brokers(replicas: Any) -> bool:
    return isinstance(replicas, list) and all(isinstance(one, int) for one in replicas)
