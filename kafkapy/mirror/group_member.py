"""The mirror's member of a Kafka consumer group in the source cluster."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence

from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import CommitFailed, ConnectionFailed
from kafkapy.client.groups.group_batches import GroupBatches
from kafkapy.client.groups.group_types import RebalanceListener
from kafkapy.client.original.filters import Blacklist, TopicFilter
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.mirror.counts import Waiting
from kafkapy.mirror.group_status import GroupStatus
from kafkapy.mirror.member import Listener, NotCommitted, Piece
from kafkapy.mirror.source_settings import GroupSource

log = logging.getLogger(__name__)

COMMIT_S = 5.0  # how long a commit is retried; the next commit comes soon


class GroupMember:
    """A member of a Kafka consumer group in the source: implements SeekingMember with a GroupBatches consumer."""

    def __init__(self, settings: GroupSource, topics: TopicFilter) -> None:
        self._settings = settings
        self._pattern = pattern_of(topics)
        self._cluster = Cluster(
            settings.bootstrap_servers,
            client_id=settings.client_id,
            timeout_s=settings.request_timeout_s,
            security=settings.security,
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
        self._status = GroupStatus(self._cluster, settings, self._pattern)

    def cluster_id(self) -> str | None:
        self._cluster.refresh([])
        return self._cluster.cluster_id

    def open(self, listener: Listener) -> None:
        self._consumer.subscribe(self._pattern, _ListenerAdapter(listener))

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        try:
            pieces = [Piece(*one) for one in self._consumer.poll_batches(timeout_s)]
        except ConnectionFailed as error:  # raised only before the first successful poll
            log.info("%s: retrying: %s", self._settings.file, error)
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
        owned = {where: offset for where, offset in offsets.items() if where in self._consumer.assignment}
        try:
            self._consumer.commit(owned, timeout_s=COMMIT_S)
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

    def waiting(self) -> Waiting | None:
        return None if self._consumer.assignment else self._status.waiting(self._consumer.group_metadata().member_id)

    def close(self) -> None:
        try:
            self._consumer.close(timeout_s=COMMIT_S)
        finally:
            self._cluster.close()
            self._status.close()


class _ListenerAdapter(RebalanceListener):
    """Passes the consumer's rebalance callbacks on to the mirror's Listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.on_taken(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.before_release(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._listener.on_lost(partitions)


def pattern_of(topics: TopicFilter) -> re.Pattern[str]:
    """Return a pattern whose `search` finds a match in exactly the topic names that the filter selects."""
    if isinstance(topics, Blacklist):
        return re.compile(rf"\A(?!(?:{topics.regex})\Z)", re.ASCII)
    return re.compile(rf"\A(?:{topics.regex})\Z", re.ASCII)
