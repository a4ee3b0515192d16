"""Creates the internal topics when a client first looks for a coordinator. Source: Kafka's AutoTopicCreationManager.

While a topic is being created, Kafka returns COORDINATOR_NOT_AVAILABLE, and clients retry. Here the clients' requests
wait until the topic is created, which takes less time than a client's retry backoff.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.coordinator.internal_topic_config import GROUPS, topic_config
from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.topics")

Then = Callable[["KafkaError | None"], object]


class _Shape(NamedTuple):
    partitions: str  # the name of the setting
    replicas: str


_GROUPS = _Shape("offsets.topic.num.partitions", "offsets.topic.replication.factor")
_TRANSACTIONS = _Shape("transaction.state.log.num.partitions", "transaction.state.log.replication.factor")


class InternalTopics:
    """Creates the internal topics `__consumer_offsets` and `__transaction_state`, each once, even if several requests
    ask for a topic at the same time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Then]] = {}
        self._logged: dict[str, str] = {}  # the last logged reason, by topic

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions that the broker's settings give to the internal topic."""
        return int(self._services.config[_shape(topic).partitions])

    def ensure(self, topic: str, then: Then) -> None:
        """Create the internal topic if it does not exist. Call `then(None)` when the topic exists: now, or from a pool
        thread. Call `then(error)` if the creation fails."""
        if not self._must_wait(topic, then):
            then(None)

    def _must_wait(self, topic: str, then: Then) -> bool:
        # While a topic is being created, the topic registry has it already, but without all of its partitions.
        # `_waiting` has an entry for the topic from before the creation until after it. So a thread that first finds
        # the topic, and then no entry in `_waiting`, knows that the creation is complete.
        if topic in self._services.topics and topic not in self._waiting:
            return False
        with self._lock:
            waiting = self._waiting.get(topic)
            if waiting is not None:
                waiting.append(then)
                return True
            if topic in self._services.topics:
                return False
            self._waiting[topic] = [then]
        try:
            self._services.disk_pool.submit(self._make, topic)
        except (PoolStopped, NoThread) as error:
            self._tell(topic, KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, str(error)))
        return True

    def _make(self, topic: str) -> None:
        try:
            self._services.controller.create(
                topic,
                partitions=self.partitions_of(topic),
                replication=int(self._services.config[_shape(topic).replicas]),
                overrides=topic_config(topic, self._services.config.values),
            )
        except KafkaError as error:
            if error.code != Errors.TOPIC_ALREADY_EXISTS or topic not in self._services.topics:
                self._warn(topic, error)
                self._tell(topic, error)
                return
        except Exception as error:
            log.exception("topic %s cannot be made", topic)
            self._tell(topic, KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)))
            return
        self._tell(topic, None)

    def _warn(self, topic: str, error: KafkaError) -> None:
        """Log that an internal topic cannot be created. The same error is logged once only, because clients retry again
        and again."""
        if self._logged.get(topic) == error.message:
            return
        self._logged[topic] = error.message
        advice = f"; {_shape(topic).replicas} says how many" if error.code == Errors.INVALID_REPLICATION_FACTOR else ""
        log.error("topic %s cannot be made, and without it there is no coordinator: %s%s", topic, error.message, advice)

    def _tell(self, topic: str, error: KafkaError | None) -> None:
        with self._lock:
            waiting = self._waiting.pop(topic)
        for then in waiting:
            then(error)


def _shape(topic: str) -> _Shape:
    return _GROUPS if topic == GROUPS else _TRANSACTIONS
