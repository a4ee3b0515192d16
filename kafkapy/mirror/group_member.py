"""A source that is read by today's group protocol."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence

from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import CommitFailed, ConnectionFailed
from kafkapy.client.group_batches import GroupBatches
from kafkapy.client.group_types import RebalanceListener
from kafkapy.client.original.filters import Blacklist, TopicFilter
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.mirror.source_settings import GroupSource
from kafkapy.mirror.sources import Listener, NotCommitted, Piece

log = logging.getLogger(__name__)

COMMIT_S = 5.0  # how long a commit is tried: the next one comes soon


class GroupMember:
    def __init__(self, settings: GroupSource, topics: TopicFilter) -> None:
        self._settings = settings
        self._pattern = pattern_of(topics)
        self._cluster = Cluster(
            settings.bootstrap_servers, client_id=settings.client_id, timeout_s=settings.request_timeout_s
        )
        self._consumer = GroupBatches(
            self._cluster,
            settings.group_id,
            assignors=settings.assignors,
            instance_id=settings.instance_id,
            auto_offset_reset=settings.auto_offset_reset,
            auto_commit=False,
            isolation=settings.isolation,
            session_timeout_s=settings.session_timeout_s,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            max_poll_interval_s=settings.max_poll_interval_s,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            partition_bytes=settings.partition_bytes,
            metadata_max_age_s=settings.metadata_max_age_s,
            rack=settings.rack,
        )
        self._lags: Mapping[TopicPartition, int] = {}

    def cluster_id(self) -> str | None:
        self._cluster.refresh([])
        return self._cluster.cluster_id

    def open(self, listener: Listener) -> None:
        self._consumer.subscribe(self._pattern, _Told(listener))

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        try:
            pieces = [Piece(*one) for one in self._consumer.poll_batches(timeout_s)]
        except ConnectionFailed as error:  # the first time; `cluster_id` has found it, so that it will come back
            log.info("%s: tries again: %s", self._settings.file, error)
            time.sleep(BACKOFF_S)
            return []
        self._lags = self._consumer.lags()
        return pieces

    def seek(self, where: TopicPartition, offset: int | None) -> None:
        if where not in self._consumer.assignment:
            return
        if offset is None:
            self._consumer.pause([where])
        else:
            self._consumer.seek(*where, offset)
            self._consumer.resume([where])

    def position(self, where: TopicPartition) -> int:
        return self._consumer.position(*where)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        ours = {where: offset for where, offset in offsets.items() if where in self._consumer.assignment}
        try:
            self._consumer.commit(ours, timeout_s=COMMIT_S)
        except (CommitFailed, ConnectionFailed) as error:
            raise NotCommitted(str(error)) from None
        except KafkaError as error:
            if not is_retriable(error.code):
                raise
            raise NotCommitted(str(error)) from None

    def partition_count(self, topic: str) -> int:
        return len(self._cluster.topic(topic, refresh=True).partitions)

    def lags(self) -> Mapping[TopicPartition, int]:
        return self._lags

    def close(self) -> None:
        try:
            self._consumer.close(timeout_s=COMMIT_S)
        finally:
            self._cluster.close()


class _Told(RebalanceListener):
    """The group's words in the mirror's."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.on_taken(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.before_release(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.on_lost(partitions)


def pattern_of(topics: TopicFilter) -> re.Pattern[str]:
    """What is looked for in the names of topics."""
    if isinstance(topics, Blacklist):
        return re.compile(rf"\A(?!(?:{topics.regex})\Z)", re.ASCII)
    return re.compile(rf"\A(?:{topics.regex})\Z", re.ASCII)
