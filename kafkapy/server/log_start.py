"""The start of the logs, which the broker does not wait for: it serves, and each partition as soon as it can be led."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.server.config_alter import check_topic

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.logs")


class LogStart:
    """Life: construct (lists the logs; from then on every partition is answered for), `start`, `stop`."""

    def __init__(self, services: Services, on_failure: Callable[[str], None]) -> None:
        """`on_failure(reason)`: the broker cannot go on. Raises RuntimeError if a log is in two directories."""
        self._services = services
        self._on_failure = on_failure
        self._loading = services.log_manager.loading
        services.controller.expect_all()
        self._loading.begin(
            lambda topic: check_topic(services.config, services.configs.topic(topic)),
            self._is_stray,
            services.controller.lead,
        )
        # These are made now: a crash came before they were, or their directory is offline.
        self._missing = [
            (name, index)
            for name in services.topics.names()
            if (topic := services.topics.get(name)) is not None
            for index in topic.assignment
            if (name, index) not in self._loading
        ]
        self._taking_over = threading.Thread(target=self._take_over, name="take-over", daemon=True)

    def _is_stray(self, name: str, partition: int, topic_id: bytes | None) -> bool:
        """Whether the tree does not know the log. A topic that is being deleted counts: its logs go the proper way."""
        topics = self._services.topics
        if name in topics.unreadable:  # what cannot be read is not known to be gone
            return False
        topic = topics.get(name) or next((one for one in topics.marked() if one.name == name), None)
        return topic is None or partition not in topic.assignment or topic_id not in (None, topic.id)

    def start(self) -> None:
        """Begins to load, and to finish what the last stop cut short, on threads."""
        self._loading.start()
        self._taking_over.start()

    def _take_over(self) -> None:
        try:
            self._services.controller.take_over(self._missing, lambda: self._services.stopping)
        except Exception as error:
            log.exception("the topics cannot be taken over")
            self._on_failure(f"the topics cannot be taken over: {error}")

    def wait(self, timeout: float | None = None) -> bool:
        """Until every partition is served, or known not to be; False if the time is up or the broker stops."""
        if not self._loading.wait(timeout):
            return False
        self._taking_over.join(timeout)
        return not self._taking_over.is_alive()

    def stop(self) -> None:
        """Before anything ends that a log needs to be led: the tree, the disk pool. `services.stopping` is set."""
        self._loading.stop()
        if self._taking_over.ident is not None:
            self._taking_over.join()
