"""Deletes topics: first from the metadata of all brokers, then each replica's log, then the nodes.

A replica whose broker or log directory is offline is deleted when it is back; the topic's nodes stay until then, also
across changes of the controller. Source: kafka.controller.TopicDeletionManager.

Differences from Kafka: the states of the partitions are not written any more once a topic is being deleted, and a
reassignment in progress does not delay the deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kafkapy.controller.cluster import Cluster
from kafkapy.controller.requests import Failures, Requests, StopRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.roles import TOPIC_DELETED
from kafkapy.metadata.topics import Topic, TopicRegistry
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller.topics")

Finished = Callable[[], object]


class Deletions:
    """The topics that are being deleted. For the controller's thread only."""

    def __init__(self, topics: TopicRegistry, cluster: Cluster, requests: Requests) -> None:
        self._topics = topics
        self._cluster = cluster
        self._requests = requests
        self._deleted: dict[str, set[tuple[int, int]]] = {}  # replicas (partition, broker) that are deleted, by topic
        self._asked: dict[str, set[tuple[int, int]]] = {}  # replicas whose broker has not responded yet
        self._waiting: dict[str, list[Finished]] = {}
        self._again: set[str] = set()  # topics to `resume` when all brokers have responded

    def begin(self, name: str) -> Topic:
        """Mark a topic as deleted, which hides it, and begin to delete its replicas. Raises KafkaError."""
        topic: Topic = wait(self._topics.mark_deleted, name)
        self.resume([topic])
        return topic

    def resume(self, topics: Iterable[Topic] | None = None) -> None:
        """Ask for the deletion of all replicas of marked topics that are online and not deleted yet."""
        for topic in list(self._topics.marked()) if topics is None else topics:
            if topic.name not in self._deleted:
                self._deleted[topic.name] = set()
                self._asked[topic.name] = set()
                self._requests.forget_topic(topic)
            asked, deleted = self._asked[topic.name], self._deleted[topic.name]
            if asked:  # one of them may fail, for the reason that has just gone
                self._again.add(topic.name)
            due = [one for one in _replicas(topic) if one not in deleted and one not in asked]
            due = [one for one in due if self._cluster.is_online(topic.name, *one, or_shutting_down=True)]
            asked.update(due)
            self._requests.delete(topic, due)
            if not due:
                self._finish(topic.name)

    def is_waiting(self, name: str) -> bool:
        """Return True if a broker that is alive has not responded yet to the deletion of the topic's replicas."""
        return bool(self._asked.get(name))

    def when_done(self, name: str, finished: Finished) -> None:
        """Call `finished()` when all live brokers have responded: now, or later on the controller's thread."""
        if self.is_waiting(name):
            self._waiting.setdefault(name, []).append(finished)
        else:
            finished()

    def answered(self, broker_id: int, request: StopRequest, failures: Failures) -> None:
        """Note a broker's response to a StopReplica request. Remove the nodes of topics that have no replica left."""
        names: dict[str, None] = {}
        for stop in request.stops:
            replica = stop.partition, broker_id
            if stop.leader_epoch != TOPIC_DELETED or replica not in self._asked.get(stop.topic, ()):
                continue
            self._asked[stop.topic].discard(replica)
            names[stop.topic] = None
            error = failures.get((stop.topic, stop.partition))
            if error is None or error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
                self._deleted[stop.topic].add(replica)
            else:
                log.warning(
                    "%s-%d is not deleted on broker %d yet: %s", stop.topic, stop.partition, broker_id, error.message
                )
        for name in names:
            self._finish(name)

    def broker_gone(self, broker_ids: Iterable[int]) -> None:
        """Wait no longer for brokers that are gone, before they have responded."""
        gone = set(broker_ids)
        for name, asked in list(self._asked.items()):
            if any(broker_id in gone for _, broker_id in asked):
                self._asked[name] = {one for one in asked if one[1] not in gone}
                self._finish(name)

    def _finish(self, name: str) -> None:
        if self._asked[name]:
            return
        topic = self._topics.marked_topic(name)
        if name in self._again and topic is not None:
            self._again.discard(name)
            self.resume([topic])
            return
        if topic is not None and self._deleted[name] >= set(_replicas(topic)):
            try:
                wait(self._topics.remove, name)
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:
                    raise
                log.error("the nodes of the deleted topic %s cannot be removed yet: %s", name, error.message)
            else:
                log.info("topic %s deleted", name)
                del self._deleted[name], self._asked[name]
        elif topic is not None:
            left = sorted({broker_id for _, broker_id in set(_replicas(topic)) - self._deleted[name]})
            log.warning(
                "topic %s is deleted, except for its replicas on brokers %s, which are not available", name, left
            )
        for finished in self._waiting.pop(name, ()):
            finished()

    def clear(self) -> None:
        """Forget everything: the controller's term is over."""
        self._deleted, self._asked, self._again, waiting, self._waiting = {}, {}, set(), self._waiting, {}
        for calls in waiting.values():
            for finished in calls:
                finished()


def _replicas(topic: Topic) -> list[tuple[int, int]]:
    return [(index, broker_id) for index, replicas in topic.assignment.items() for broker_id in replicas]
