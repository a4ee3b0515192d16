"""Loads the logs when the broker starts. The broker does not wait: it serves each partition once its log is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.runtime.threads import Thread

if TYPE_CHECKING:
    from kafkapy.controller.topic_changes import TopicController
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.logs")


class LogLoading:
    """Loads all logs in the background while the broker starts.

    When it is constructed, it lists the logs; from then on, requests for their partitions get a response. Then call
    `start`, and `stop` at the end.
    """

    def __init__(self, services: Services, controller: TopicController, on_failure: Callable[[str], None]) -> None:
        """List the logs to load. `on_failure(reason)` is called if the broker cannot continue. Raise RuntimeError if a
        log is in two log directories."""
        self._services = services
        self._on_failure = on_failure
        self._loading = services.log_manager.loading
        self._controller = controller
        # Partitions of topics that are created after this line get their leaders when the topic is created.
        self._topics = [topic for name in services.topics.names() if (topic := services.topics.get(name)) is not None]
        for topic in self._topics:
            mine = (index for index, replicas in topic.assignment.items() if services.broker_id in replicas)
            services.replicas.expect(topic.name, mine)
        self._loading.begin(services.topic_settings.of, self._is_stray, self._loaded)
        self._taking_over = Thread(self._take_over, "take-over")

    def _is_stray(self, name: str, partition: int, topic_id: bytes | None) -> bool:
        """Return True if a log belongs to no topic in the metadata tree. The logs of a topic that is being deleted are
        not stray: the deletion removes them."""
        topics = self._services.topics
        if name in topics.unreadable:  # the topic exists, though its node cannot be read
            return False
        topic = topics.get(name) or next((one for one in topics.marked() if one.name == name), None)
        return topic is None or partition not in topic.assignment or topic_id not in (None, topic.id)

    def _loaded(self, topic: str, index: int) -> None:
        self._services.roles.loaded(topic, index)
        if topic not in self._services.topics:
            self._services.controller.finish_marked(topic)

    def start(self) -> None:
        """Start the threads that load the logs and finish topic deletions that were interrupted when the broker last
        stopped."""
        self._loading.start()
        self._taking_over.start()

    def _take_over(self) -> None:
        try:
            if self._controller.start(self._topics, lambda: self._services.stopping):
                self._services.cache.is_complete = True
        except Exception as error:
            log.exception("the topics cannot be taken over")
            self._on_failure(f"the topics cannot be taken over: {error}")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every partition either is served or has failed to load. Return False if the broker stops before
        that, or if `timeout` (seconds) has passed."""
        if not self._loading.wait(timeout):
            return False
        self._taking_over.join(timeout)
        return not self._taking_over.is_alive()

    def stop(self) -> None:
        """Stop loading logs. Call this with `services.stopping` set, before the metadata tree and the disk pool are
        stopped."""
        self._loading.stop()
        if self._taking_over.ident is not None:
            self._taking_over.join()
