"""Elections and reassignments that old tools request by creating a node in `/admin` (the only way before Kafka 2.4).

As in Kafka, an election node is deleted after the election. A reassignment node loses each partition whose reassignment
is complete, and is deleted with the last one, so old tools can follow the progress. A reassignment that the
AlterPartitionReassignments request would refuse is refused here too, with a log line. (Kafka checks such a node less
strictly, and could wait for a broker that does not exist.) Source: KafkaController's
PreferredReplicaLeaderElection and ZkPartitionReassignment.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkapy.controller.controller import ClusterController
from kafkapy.controller.leaders import PREFERRED
from kafkapy.controller.reassignment import target_of
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Set, Tree

log = logging.getLogger("kafkapy.controller.outside")

_REASSIGNMENT_VERSION = 1


class AdminRequests:
    """Processes the election and reassignment requests that tools write to nodes in `/admin`.

    Methods wait for the metadata tree, so they must not run in its callbacks. They raise TreeError, and KafkaError
    NOT_CONTROLLER.
    """

    def __init__(
        self, tree: Tree, fence: ControllerFence, topics: TopicRegistry, controller: ClusterController
    ) -> None:
        self._tree = tree
        self._fence = fence
        self._topics = topics
        self._controller = controller
        self._begun: dict[tuple[str, int], list[int]] = {}  # reassignments begun in this term, with their targets
        self._epoch = fence.epoch

    def look(self, path: str) -> None:
        """Process the request in the node `path`. Does nothing if the node does not exist.

        An invalid request is logged, and its node deleted.
        """
        node = self._tree.find(path)
        if self._epoch != self._fence.epoch or (node is None and path == paths.REASSIGNMENT):
            self._begun.clear()
            self._epoch = self._fence.epoch
        if node is None:
            return
        left: list[dict[str, Any]] = []
        try:
            asked = _partitions(node.data, path)
            if path == paths.PREFERRED_ELECTION:
                self._elect([(one["topic"], one["partition"]) for one in asked])
            else:
                left = [one for one in asked if self._is_moving(one["topic"], one["partition"], one["replicas"])]
        except ValueError as error:
            log.error("%s; the node is deleted", error)
        if not left:
            self._fence.discard(path)
        elif len(left) < len(asked):
            data = paths.to_json({"version": _REASSIGNMENT_VERSION, "partitions": left})
            self._tree.commit(self._fence.fenced([Set(path, data, node.version)]))

    def _elect(self, partitions: list[tuple[str, int]]) -> None:
        for (name, index), error in self._controller.elect(PREFERRED, partitions).items():
            if error is None:
                log.info("%s-%d has its preferred leader now", name, index)
            elif error.code != Errors.ELECTION_NOT_NEEDED:
                log.warning(
                    "the election of %s-%d that %s requests cannot be held: %s",
                    name,
                    index,
                    paths.PREFERRED_ELECTION,
                    error.message,
                )

    def _is_moving(self, name: str, index: int, target: list[int]) -> bool:
        """Begin a reassignment unless it was begun before, perhaps by another controller. Return True if it is in
        progress.
        """
        if self._is_in_progress(name, index, target):
            self._begun[name, index] = target
            return True
        if name not in self._topics or self._begun.get((name, index)) != target:
            try:
                self._controller.reassign(name, index, target)
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:
                    raise
                log.error(
                    "the reassignment of %s-%s that %s requests is refused: %s",
                    name,
                    index,
                    paths.REASSIGNMENT,
                    error.message,
                )
                return False
            self._begun[name, index] = target
        return self._is_in_progress(name, index, target)

    def _is_in_progress(self, name: str, index: int, target: list[int]) -> bool:
        topic = self._topics.get(name)
        return topic is not None and index in topic.moves and target_of(topic, index) == target


def _partitions(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return the `partitions` list of a request, a dict for each partition. `data` is the content of the node `path`.

    As in Kafka, the last entry counts if a partition is named twice. Raises ValueError, with the path, if the data is
    invalid.
    """
    asked = paths.from_json(data, path).get("partitions")
    if not isinstance(asked, list) or not all(
        isinstance(one, dict) and isinstance(one.get("topic"), str) and isinstance(one.get("partition"), int)
        for one in asked
    ):
        raise ValueError(f"the request at {path} has no list of partitions")
    if path == paths.REASSIGNMENT and not all(_are_brokers(one.get("replicas")) for one in asked):
        raise ValueError(f"the request at {path} does not list the target replicas")
    return list({(one["topic"], one["partition"]): one for one in asked}.values())


def _are_brokers(replicas: Any) -> bool:
    return isinstance(replicas, list) and all(isinstance(one, int) for one in replicas)
