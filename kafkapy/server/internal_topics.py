"""Creates the internal topics when a client first looks for a coordinator. Source: Kafka's AutoTopicCreationManager.

While a topic is being created, Kafka returns COORDINATOR_NOT_AVAILABLE, and clients retry. If this broker is the
controller, the clients' requests wait until the topic is created, which takes less time than a client's retry backoff.
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


_MOST_REPLICAS = 3  # if no number is set


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
        """Return the number of partitions with which this broker would create the internal topic."""
        return int(self._services.config[_shape(topic).partitions])

    def ensure(self, topic: str, then: Then) -> None:
        """Create the internal topic if it does not exist. Call `then(None)` when the topic is in the metadata cache:
        now, or from a pool thread. Call `then(error)` if the creation fails, or if another broker is the controller and
        its metadata do not have the topic yet."""
        if not self._must_wait(topic, then):
            then(None)

    def _must_wait(self, topic: str, then: Then) -> bool:
        # While the controller in this process creates a topic, the metadata cache has it already, but without all its
        # leaders. `_waiting` has an entry for the topic from before the creation until after it. So a thread that first
        # finds the topic, and then no entry in `_waiting`, knows that the creation is complete.
        if topic in self._services.cache and topic not in self._waiting:
            return False
        with self._lock:
            waiting = self._waiting.get(topic)
            if waiting is not None:
                waiting.append(then)
                return True
            if topic in self._services.cache:
                return False
            self._waiting[topic] = [then]
        try:
            self._services.disk_pool.submit(self._make, topic)
        except (PoolStopped, NoThread) as error:
            self._complete(topic, KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, str(error)))
        return True

    def _make(self, topic: str) -> None:
        services = self._services
        try:
            services.controller.create_on_demand(
                topic,
                partitions=self.partitions_of(topic),
                replication=self._replicas_of(topic),
                overrides=topic_config(topic, services.config.values),
            )
        except KafkaError as error:
            if error.code != Errors.TOPIC_ALREADY_EXISTS:
                self._warn(topic, error)
                self._complete(topic, error)
                return
        except Exception as error:
            log.exception("topic %s cannot be created", topic)
            self._complete(topic, KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)))
            return
        creating = KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, f"topic {topic} is being created")
        self._complete(topic, None if topic in services.cache else creating)

    def _replicas_of(self, topic: str) -> int:
        """Return the number of replicas of the internal topic: the setting, or if that is not given, as many as there
        are live brokers, at most 3. Without ZooKeeper it is 1."""
        config, setting = self._services.config, _shape(topic).replicas
        if config.is_set(setting):
            return int(config[setting])
        if not config["zookeeper.connect"]:
            return 1
        alive = max(len(self._services.cache.live_brokers()), 1)
        if alive < _MOST_REPLICAS and self._logged.get(topic) != setting:
            self._logged[topic] = setting
            log.warning(
                "topic %s gets %d replicas and not %d, because no more brokers are alive: a reassignment can add "
                "replicas later, and %s can require a number",
                topic,
                alive,
                _MOST_REPLICAS,
                setting,
            )
        return min(alive, _MOST_REPLICAS)

    def _warn(self, topic: str, error: KafkaError) -> None:
        """Log that an internal topic cannot be created. The same error is logged once only, because clients retry again
        and again."""
        if self._logged.get(topic) == error.message:
            return
        self._logged[topic] = error.message
        advice = f"; {_shape(topic).replicas} says how many" if error.code == Errors.INVALID_REPLICATION_FACTOR else ""
        log.error(
            "topic %s cannot be created, and without it there is no coordinator: %s%s", topic, error.message, advice
        )

    def _complete(self, topic: str, error: KafkaError | None) -> None:
        with self._lock:
            waiting = self._waiting.pop(topic)
        for then in waiting:
            then(error)


def _shape(topic: str) -> _Shape:
    return _GROUPS if topic == GROUPS else _TRANSACTIONS
