"""How many partitions topics have in the target; those that are not there are made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kafkapy.client.admin import Admin
from kafkapy.client.cluster import Cluster
from kafkapy.client.descriptions import NewTopic
from kafkapy.errors import Errors, KafkaError
from kafkapy.mirror.options import CreateTopics

log = logging.getLogger(__name__)

LOOK_EVERY_S = 300.0  # partitions that a topic gets later are used from then on, as Kafka's producer does it


class NoTopic(Exception):
    """The target has no such topic, or not the partitions that are needed; the text says which and what to do."""


class TargetTopics:
    """For one thread.

    Args:
        cluster: the target, with connections of its own.
        same_numbers: why each partition must have one of the same number in the target; None: it need not.
    """

    def __init__(self, cluster: Cluster, create: CreateTopics, *, same_numbers: str | None = None) -> None:
        self._cluster = cluster
        self._create = create
        self._same_numbers = same_numbers
        self._counts: dict[str, tuple[int, float]] = {}

    def partition_count(self, topic: str, in_source: Callable[[], int], partition: int) -> int:
        """Of a topic in the target, which is made if need be.

        Args:
            in_source: tells how many it has there.
            partition: whose records are to be written.
        Raises:
            NoTopic, KafkaError, ClientError.
        """
        count, look_at = self._counts.get(topic, (0, 0.0))
        is_missing = self._same_numbers is not None and partition >= count
        if is_missing or time.monotonic() >= look_at:
            first = not count
            count = self._look(topic, in_source)
            if first and count != (source := in_source()):
                log.warning("topic %r has %d partitions in the target and %d in the source", topic, count, source)
            self._counts[topic] = count, time.monotonic() + LOOK_EVERY_S
        if self._same_numbers is not None and partition >= count:
            raise NoTopic(
                f"topic {topic!r} has no partition {partition} in the target, only {count}, but {self._same_numbers}; "
                "give it as many as in the source (kafkapy topics alter --partitions)"
            )
        return count

    def close(self) -> None:
        self._cluster.close()

    def _look(self, topic: str, in_source: Callable[[], int]) -> int:
        try:
            return len(self._cluster.topic(topic, create=self._create == "target", refresh=True).partitions)
        except KafkaError as error:
            if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        if self._create != "source":
            hint = "make it there" if self._create == "never" else "make it there, or let --create-topics=source do it"
            raise NoTopic(f"the target has no topic {topic!r}, and makes none; {hint}")
        count = in_source()
        try:
            Admin(self._cluster).create_topics([NewTopic(topic, count)])
            log.info("topic %r is made in the target, with %d partitions as in the source", topic, count)
        except KafkaError as error:
            if error.code != Errors.TOPIC_ALREADY_EXISTS:  # another stream was faster
                raise
        return len(self._cluster.topic(topic, refresh=True, patient=True).partitions)
