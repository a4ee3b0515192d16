"""The settings of topics: stored in the metadata tree, and applied to the logs of this broker (KIP-133)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.server.config.alter import check_topic, stored_topic

if TYPE_CHECKING:
    from kafkapy.server.services import Services

THROTTLED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})

log = logging.getLogger("kafkapy.server.config.topics")

Overrides = dict[str, str]


class TopicSettings:
    """Reads and changes the settings of topics. All methods except `of` and `check` may wait for the metadata tree."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._changing = threading.Lock()

    def of(self, topic: str) -> LogConfig:
        """Return the log settings of an existing topic. Raise KafkaError INVALID_CONFIG if a stored value cannot be
        parsed."""
        return stored_topic(self._services.config, self._services.configs.topic(topic))

    def may_be_unclean(self, topic: str) -> bool:
        """Return unclean.leader.election.enable of a topic; False if its stored settings are invalid."""
        try:
            return bool(self.of(topic).unclean_leader_election_enable)
        except KafkaError:
            return False

    def check(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the log settings of a topic with these overrides. Raise KafkaError INVALID_CONFIG if an override is
        invalid."""
        return check_topic(self._services.config, overrides)

    def alter(self, topic: str, change: Callable[[Overrides], Overrides], *, validate_only: bool) -> None:
        """Replace a topic's overrides with the result of `change(current overrides)`, and apply them to its logs; only
        check them if `validate_only` is True. Raise KafkaError if the topic does not exist or an override is invalid.
        """
        services = self._services

        def checked(stored: Overrides) -> Overrides | None:
            overrides = change(stored)
            self.check(overrides)
            return None if validate_only else overrides

        with self._changing:
            if not topic:
                raise KafkaError(Errors.INVALID_REQUEST, "a topic's settings need its name")
            if topic not in services.cache:
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
            overrides = services.configs.alter_topic(topic, checked)
            if overrides is None:
                return
            config = stored_topic(services.config, overrides)
            self._apply(topic, config)
        services.roles.settings_changed(topic)
        ignored = config.format_ignored()
        if ignored is not None:
            log.warning("topic %s: %s", topic, ignored)
        log.info("settings of topic %s are now: %s", topic, overrides or "defaults")

    def _apply(self, topic: str, config: LogConfig) -> None:
        self._services.replicas.update_config(topic, config)
        self._throttle(topic, config)

    def _throttle(self, topic: str, config: LogConfig) -> None:
        self._services.throttles.set_topic(
            topic,
            config.leader_replication_throttled_replicas,
            config.follower_replication_throttled_replicas,
            self._services.broker_id,
        )

    def load_throttles(self) -> None:
        """Set the throttled partitions of all topics when the broker starts."""
        services = self._services
        for topic in services.topics.names():
            if not THROTTLED.isdisjoint(services.configs.topic(topic)):
                with suppress(KafkaError):  # reported when the topic's logs are loaded
                    self._throttle(topic, self.of(topic))

    def reload(self, topic: str) -> None:
        """Apply a topic's stored settings to its logs again, because another program may have changed them. Raise
        KafkaError INVALID_CONFIG if a stored value cannot be parsed."""
        with self._changing:
            if topic in self._services.cache:
                self._apply(topic, self.of(topic))
        self._services.roles.settings_changed(topic)

    def refresh_all(self) -> None:
        """Apply the settings of all topics to their logs again, after a change of the broker's settings, which are
        their defaults."""
        with self._changing:
            for topic in self._services.cache.names():
                try:
                    self._apply(topic, self.of(topic))
                except KafkaError as error:
                    log.error(
                        "the logs of topic %s keep their settings, because the stored ones are invalid: %s",
                        topic,
                        error.message,
                    )
