"""Elections and reassignments that old tools ask for by a node in `/admin` (before Kafka 2.4 there was no other way).

With one broker there is little to choose: it leads what it can, and replicas can only be moved to where they are. A
request is answered by its node going away, as with Kafka. Source: KafkaController's PreferredReplicaLeaderElection
and ZkPartitionReassignment.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkapy.metadata import paths
from kafkapy.metadata.cluster import discard
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Tree

log = logging.getLogger("kafkapy.controller.outside")


class AdminRequests:
    """Waits for the tree: not for callbacks."""

    def __init__(self, tree: Tree, topics: TopicRegistry) -> None:
        self._tree = tree
        self._topics = topics

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
        discard(self._tree, path)

    def _answer(self, path: str, asked: Any) -> None:
        name, index = asked["topic"], asked["partition"]
        topic = self._topics.get(name)
        replicas = topic.assignment.get(index) if topic is not None else None
        if replicas is None:
            log.warning("%s names %s-%s, and there is no such partition", path, name, index)
        elif path == paths.PREFERRED_ELECTION:
            log.info("%s-%d has the leader that it can have", name, index)
        elif asked.get("replicas") != replicas:
            log.error(
                "%s-%d stays on %s: it cannot be moved to %s, because this broker has a cluster of its own",
                name,
                index,
                replicas,
                asked.get("replicas"),
            )


def _partitions(data: bytes, path: str) -> list[dict[str, Any]]:
    """What is asked for; ValueError names the path."""
    asked = paths.from_json(data, path).get("partitions")
    if not isinstance(asked, list) or not all(
        isinstance(one, dict) and isinstance(one.get("topic"), str) and isinstance(one.get("partition"), int)
        for one in asked
    ):
        raise ValueError(f"the request at {path} has no list of partitions")
    return asked
