"""Deletes topics: first from the metadata of all brokers, then each replica's log, then the nodes.

A replica whose broker or log directory is offline is deleted when it is back; the topic's nodes stay until then, also
across changes of the controller. Source: kafka.controller.TopicDeletionManager.

Differences from Kafka: the states of the partitions are not written any more once a topic is being deleted, and a
reassignment in progress does not delay the deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from kafkapy.controller.cluster import Cluster
from kafkapy.controller.requests import Failures, Requests, StopRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.roles import TOPIC_DELETED
from kafkapy.metadata.topics import Topic, TopicRegistry
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller.topics")

Finished = Callable[[], object]


class _Deletion:
    """The deletion of a topic's replicas (partition, broker id)."""

    def __init__(self) -> None:
        self.deleted: set[tuple[int, int]] = set()
        self.asked: set[tuple[int, int]] = set()  # replicas whose broker has not responded yet
        self.again = False  # to `resume` when all brokers have responded
        self.waiting: list[Finished] = []

    def call_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for finished in waiting:
            finished()


class Deletions:
    """The topics that are being deleted. For the controller's thread only."""

    def __init__(self, topics: TopicRegistry, cluster: Cluster, requests: Requests) -> None:
        self._topics = topics
        self._cluster = cluster
        self._requests = requests
        self._by_name: dict[str, _Deletion] = {}

    def begin(self, name: str) -> None:
        """Mark a topic as deleted, which hides it, and begin to delete its replicas. Raises KafkaError."""
        self.resume([wait(self._topics.mark_deleted, name)])

    def resume(self, topics: Iterable[Topic] | None = None) -> None:
        """Ask brokers to delete the replicas of marked topics that are online and not deleted yet."""
        for topic in self._topics.marked() if topics is None else topics:
            deletion = self._by_name.get(topic.name)
            if deletion is None:
                deletion = self._by_name[topic.name] = _Deletion()
                self._requests.forget_topic(topic)
            if deletion.asked:  # a requested deletion may fail for a reason that has just gone
                deletion.again = True
            due = [
                (index, broker_id)
                for index, broker_id in _replicas(topic) - deletion.deleted - deletion.asked
                if self._cluster.is_online(topic.name, index, broker_id, or_shutting_down=True)
            ]
            deletion.asked.update(due)
            for index, broker_id in sorted(due):
                self._requests.stop((topic.name, index), TOPIC_DELETED, [broker_id], delete=True)
            if not due:
                self._finish(topic.name)

    def when_done(self, name: str, finished: Finished) -> None:
        """Call `finished()` when all live brokers have responded: now, or later on the controller's thread."""
        deletion = self._by_name.get(name)
        if deletion is not None and deletion.asked:
            deletion.waiting.append(finished)
        else:
            finished()

    def answered(self, broker_id: int, request: StopRequest, failures: Failures) -> None:
        """Note a broker's response to a StopReplica request. Remove the nodes of topics that have no replica left."""
        names: dict[str, None] = {}
        for stop in request.stops:
            replica, deletion = (stop.partition, broker_id), self._by_name.get(stop.topic)
            if stop.leader_epoch != TOPIC_DELETED or deletion is None or replica not in deletion.asked:
                continue
            deletion.asked.discard(replica)
            names[stop.topic] = None
            error = failures.get((stop.topic, stop.partition))
            if error is None or error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
                deletion.deleted.add(replica)
            else:
                where = f"{stop.topic}-{stop.partition}"
                log.warning("%s is not deleted on broker %d yet: %s", where, broker_id, error.message)
        for name in names:
            self._finish(name)

    def broker_gone(self, broker_ids: Collection[int]) -> None:
        """Stop waiting for the responses of brokers that are gone."""
        for name, deletion in list(self._by_name.items()):
            left = {one for one in deletion.asked if one[1] not in broker_ids}
            if left != deletion.asked:
                deletion.asked = left
                self._finish(name)

    def _finish(self, name: str) -> None:
        """If all brokers have responded, remove the nodes of a topic that has no replica left."""
        deletion, topic = self._by_name[name], self._topics.marked_topic(name)
        if deletion.asked:
            return
        if deletion.again and topic is not None:
            deletion.again = False
            self.resume([topic])
            return
        left = set() if topic is None else _replicas(topic) - deletion.deleted
        if left:
            brokers = sorted({broker_id for _, broker_id in left})
            log.warning(
                "topic %s is deleted, except for its replicas on brokers %s, which are not available", name, brokers
            )
        elif topic is not None:
            self._remove(name)
        deletion.call_waiting()

    def _remove(self, name: str) -> None:
        try:
            wait(self._topics.remove, name)
        except KafkaError as error:
            if error.code == Errors.NOT_CONTROLLER:
                raise
            log.error("the nodes of the deleted topic %s cannot be removed yet: %s", name, error.message)
        else:
            log.info("topic %s deleted", name)
            del self._by_name[name]

    def clear(self) -> None:
        """Forget everything: the controller's term is over."""
        deletions, self._by_name = self._by_name, {}
        for deletion in deletions.values():
            deletion.call_waiting()


def _replicas(topic: Topic) -> set[tuple[int, int]]:
    return {(index, broker_id) for index, replicas in topic.assignment.items() for broker_id in replicas}
