"""Looks up how many partitions topics have in the target, and creates missing topics there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kafkapy.client.administration.admin import Admin
from kafkapy.client.administration.descriptions import NewTopic
from kafkapy.client.cluster import Cluster
from kafkapy.errors import Errors, KafkaError
from kafkapy.mirror.options import CreateTopics

log = logging.getLogger(__name__)

REFRESH_S = 300.0  # partitions that are added later are used after this time, like in Kafka's producer


class NoTopic(Exception):
    """The target does not have a topic or partition. The message says which, and what to do."""


class TargetTopics:
    """Looks up and creates topics in the target. For one thread.

    Args:
        cluster: The target, with its own connections.
        same_numbers: The reason, for error messages, why the target's topic needs every partition number of the source.
            None: the partition numbers may differ.
    """

    def __init__(self, cluster: Cluster, create: CreateTopics, *, same_numbers: str | None = None) -> None:
        self._cluster = cluster
        self._create = create
        self._same_numbers = same_numbers
        self._counts: dict[str, tuple[int, float]] = {}

    def partition_count(self, topic: str, in_source: Callable[[], int], partition: int) -> int:
        """Return the number of partitions of a topic in the target. Create the topic there if it is missing.

        Args:
            in_source: Returns the topic's number of partitions in the source.
            partition: The source partition whose records are copied.
        Raises:
            NoTopic: The topic is missing and may not be created, or a partition that `same_numbers` requires is
                missing.
            KafkaError, ClientError: The target's error.
        """
        count, refresh_at = self._counts.get(topic, (0, 0.0))
        is_missing = self._same_numbers is not None and partition >= count
        if is_missing or time.monotonic() >= refresh_at:
            first = not count
            count = self._look_up(topic, in_source)
            if first and count != (source := in_source()):
                log.warning("topic %r has %d partitions in the target and %d in the source", topic, count, source)
            self._counts[topic] = count, time.monotonic() + REFRESH_S
        if self._same_numbers is not None and partition >= count:
            raise NoTopic(
                f"topic {topic!r} has no partition {partition} in the target, only {count}, but {self._same_numbers}; "
                "give it as many as in the source (kafkapy topics alter --partitions)"
            )
        return count

    def close(self) -> None:
        self._cluster.close()

    def _look_up(self, topic: str, in_source: Callable[[], int]) -> int:
        """Return the number of partitions of a topic in the target, from a new lookup.

        Creates the topic if it is missing; see `CreateTopics`. Raises NoTopic if it may not be created.
        """
        try:
            return len(self._cluster.topic(topic, create=self._create == "target", refresh=True).partitions)
        except KafkaError as error:
            if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        if self._create != "source":
            hint = "create it" if self._create == "never" else "create it, or let --create-topics=source do so"
            raise NoTopic(f"the target has no topic {topic!r} and does not create it; {hint}")
        count = in_source()
        try:
            Admin(self._cluster).create_topics([NewTopic(topic, count)])
            log.info("created topic %r in the target with %d partitions, as in the source", topic, count)
        except KafkaError as error:
            if error.code != Errors.TOPIC_ALREADY_EXISTS:  # another stream was faster
                raise
        return len(self._cluster.topic(topic, refresh=True, wait_for_leaders=True).partitions)
