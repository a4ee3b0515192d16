"""Reads how far an exactly-once mirror has copied: the offsets that it commits to a group in the target."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import UnsupportedByBroker
from kafkapy.client.groups.coordinator_link import CoordinatorLink
from kafkapy.client.groups.group_offsets import ONE_GROUP_UNTIL, STABLE_FROM, fetch_request
from kafkapy.client.responses import check
from kafkapy.protocol.apis import OFFSET_FETCH


class TargetOffsets:
    """Reads the committed offsets of a group in the target. For one thread.

    `close` also closes the cluster.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._link = CoordinatorLink(cluster, group)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offset of each partition, after waiting for pending transactions.

        Partitions without a committed offset are left out.

        Raises:
            UnsupportedByBroker: The target is older than Kafka 2.5 and has no require_stable (KIP-447).
            KafkaError, ConnectionFailed: The coordinator still had this error when the time limit was over.
        """
        wanted = list(partitions)
        return self._link.retry(lambda: self._ask(wanted))

    def close(self) -> None:
        self._link.close()
        self._cluster.close()

    def _ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Send one OffsetFetch request and return the committed offsets. Raise the coordinator's errors."""
        if self._link.connection().version_of(OFFSET_FETCH, ONE_GROUP_UNTIL) < STABLE_FROM:
            raise UnsupportedByBroker("The target is older than Kafka 2.5; it cannot wait for pending offsets.")
        request = fetch_request(self._link.key, partitions, stable=True)
        answer = self._link.call(OFFSET_FETCH, request, at_most=ONE_GROUP_UNTIL)
        check(answer.error_code, f"the offsets of group {self._link.key!r}")
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                where = topic.name, one.partition_index
                check(one.error_code, f"the offset of group {self._link.key!r} in {where[0]}-{where[1]}")
                if one.committed_offset >= 0:
                    found[where] = one.committed_offset
        return found
