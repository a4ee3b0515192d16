"""Elections and reassignments that old tools request by creating a node in `/admin` (the only way before Kafka 2.4).

With one broker there is little to do: it leads every partition that it can, and replicas can only be moved to the
broker where they are. The controller deletes the node when it has processed the request, as Kafka does. A reassignment
that the AlterPartitionReassignments request would refuse is refused here too, with a log line. (Kafka checks such a
node less strictly, and could wait for a broker that does not exist.) Source: KafkaController's
PreferredReplicaLeaderElection and ZkPartitionReassignment.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkapy.controller.topic_changes import TopicController
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Tree

log = logging.getLogger("kafkapy.controller.outside")


class AdminRequests:
    """Processes the election and reassignment requests that tools write to nodes in `/admin`.

    Methods wait for the metadata tree, so they must not run in its callbacks. They raise TreeError, and KafkaError
    NOT_CONTROLLER.
    """

    def __init__(self, tree: Tree, fence: ControllerFence, topics: TopicRegistry, controller: TopicController) -> None:
        self._tree = tree
        self._fence = fence
        self._topics = topics
        self._controller = controller

    def look(self, path: str) -> None:
        """Process the request in the node `path` and delete the node. Does nothing if the node does not exist.

        An invalid request is logged.
        """
        node = self._tree.find(path)
        if node is None:
            return
        try:
            for asked in _partitions(node.data, path):
                self._answer(path, asked)
        except ValueError as error:
            log.error("%s; it is thrown away", error)
        self._fence.discard(path)

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
    """Return the `partitions` list of a request, a dict for each partition. `data` is the content of the node `path`.

    Raises ValueError, with the path, if the data is invalid.
    """
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
