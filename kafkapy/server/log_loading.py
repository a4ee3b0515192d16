"""Loads the logs when the broker starts. The broker does not wait: it serves each partition once its log is loaded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.errors import KafkaError
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.tree import TreeUnreachable
from kafkapy.runtime.threads import Thread

if TYPE_CHECKING:
    from kafkapy.controller.controller import ClusterController
    from kafkapy.metadata.topics import Topic
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.logs")

_RETRY_S = 1.0


class LogLoading:
    """Loads all logs in the background while the broker starts.

    When it is constructed, it lists the logs; from then on, requests for their partitions get a response. Then call
    `start`, and `stop` at the end.
    """

    def __init__(self, services: Services, controller: ClusterController, on_failure: Callable[[str], None]) -> None:
        """List the logs to load. `on_failure(reason)` is called if the broker cannot continue. Raise
        LogInTwoDirectories if a log is in two log directories."""
        self._services = services
        self._on_failure = on_failure
        self._loading = services.log_manager.loading
        self._controller = controller
        # Partitions of topics that are created after this line get their leaders when the topic is created.
        self._topics = services.topics.all()
        self._stored: Mapping[str, Topic] = {}
        if services.is_controller:
            self._expect(self._topics)
        self._loading.begin(services.topic_settings.of, self._is_stray, self._loaded)
        if not services.is_controller:  # it does not follow the topics: look once at those that have logs here
            self._stored = services.topics.stored(self._loading.topics())
            services.cache.expects_topics = bool(self._stored)
            self._expect(self._stored.values())
            for topic in self._stored.values():
                absent = [index for index in topic.assignment if services.replicas.is_expected(topic.name, index)]
                services.replicas.await_roles(
                    topic.name, [index for index in absent if (topic.name, index) not in self._loading]
                )
        self._takes_over = services.is_controller  # later, the thread that follows the election does it
        self._taking_over = Thread(self._take_over, "take-over")

    def _expect(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            mine = (index for index, replicas in topic.assignment.items() if self._services.broker_id in replicas)
            self._services.replicas.expect(topic.name, mine)

    def _is_stray(self, name: str, partition: int, topic_id: bytes | None) -> bool:
        """Return True if a log belongs to no topic in the metadata tree, or to another one of the same name. The logs
        of a topic that is being deleted are not stray: the deletion removes them.

        If another broker is the controller, it has StopReplica sent for partitions that this broker is to drop.
        """
        topics = self._services.topics
        if name in topics.unreadable:  # the topic exists, though its node cannot be read
            return False
        topic = topics.get(name) or topics.marked_topic(name) or self._stored.get(name)
        if topic is None or (self._services.is_controller and partition not in topic.assignment):
            return True
        return topic_id is not None and topic_id != topic.id and topic.id != ZERO_ID

    def _loaded(self, topic: str, index: int) -> None:
        services = self._services
        services.roles.loaded(topic, index)
        if not services.is_controller:  # which sends this broker its role
            if services.replicas.is_expected(topic, index):
                services.replicas.await_roles(topic, [index])
        elif topic not in services.topics:
            services.controller.finish_marked(topic)

    def start(self) -> None:
        """Start the threads that load the logs and finish topic deletions that were interrupted when the broker last
        stopped."""
        self._loading.start()
        self._taking_over.start()

    def _take_over(self) -> None:
        services = self._services
        if not self._takes_over:
            return
        try:
            while not self._has_taken_over():
                time.sleep(_RETRY_S)
        except Exception as error:
            if not services.is_controller:
                log.info("the roles of all partitions are not sent: this broker is not the controller any more")
                return
            log.exception("the roles of all partitions cannot be sent")
            self._on_failure(f"the roles of all partitions cannot be sent: {error}")

    def _has_taken_over(self) -> bool:
        """Send all roles. Return False if that has to be repeated, because ZooKeeper cannot be reached."""
        services = self._services

        def must_stop() -> bool:
            return services.stopping or not services.is_controller

        try:
            if self._controller.start(self._topics, must_stop):
                services.cache.complete()
        except KafkaError as error:
            if isinstance(error.__cause__, TreeUnreachable) and not must_stop():
                log.warning("the roles of all partitions cannot be sent yet: %s", error.message)
                return False
            raise
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every partition either is served or has failed to load. Return False if the broker stops before
        that, or if `timeout` (seconds) has passed."""
        if not self._loading.wait(timeout):
            return False
        self._stored = {}  # `_is_stray` is not called any more
        self._taking_over.join(timeout)
        return not self._taking_over.is_alive()

    def stop(self) -> None:
        """Stop loading logs. Call this with `services.stopping` set, before the metadata tree and the disk pool are
        stopped."""
        self._loading.stop()
        if self._taking_over.ident is not None:
            self._taking_over.join()
