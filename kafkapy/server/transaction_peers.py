"""The calls between brokers for transactions. Each call is for the broker that leads a partition in the metadata cache.

If that is this broker, the call is made directly. This broker has no connections to other brokers yet, so a call for
another broker returns an error after which the caller tries again. AddPartitionsToTxn and WriteTxnMarkers requests to
other brokers would be sent by `Verification.ask` and `MarkerSender.write`.

Source: Kafka's AddPartitionsToTxnManager and TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.internal_topic_config import TRANSACTIONS
from kafkapy.errors import Errors

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.completion import Markers
    from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.record.control import Marker

TopicPartition = tuple[str, int]
Done = Callable[[Mapping[TopicPartition, int]], None]


class Verification:
    """Asks the coordinator of a transaction whether partitions were added to the transaction."""

    def __init__(self, cache: MetadataCache, broker_id: int, coordinator: TransactionCoordinator) -> None:
        self._cache = cache
        self._broker_id = broker_id
        self._coordinator = coordinator

    def ask(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition], done: Done
    ) -> None:
        """Call `done` with an error code for each partition, which is NONE if the partition was added to the
        transaction: at once, or later on any thread. See TransactionCoordinator.verify."""
        index = self._coordinator.shards.partition_for(transactional_id)
        if _is_elsewhere(self._cache, self._broker_id, TRANSACTIONS, index):
            done(dict.fromkeys(partitions, Errors.NOT_COORDINATOR))  # to do: send AddPartitionsToTxn (verify_only)
        else:
            self._coordinator.verify(transactional_id, producer_id, epoch, partitions, done)


class MarkerSender:
    """Sends transaction markers to the leaders of partitions, and checks whether partitions still exist."""

    def __init__(self, cache: MetadataCache, broker_id: int, local: Markers) -> None:
        self._cache = cache
        self._broker_id = broker_id
        self._local = local

    def exists(self, topic: str, index: int) -> bool:
        """Return False if the partition is known to be deleted, so that it needs no transaction marker."""
        return self._cache.leader(topic, index) is not None or not self._cache.is_complete

    def write(self, marker: Marker, partitions: Sequence[TopicPartition], done: Done) -> None:
        """Write a transaction marker to each partition. Call `done` one or more times, on any thread, each time with
        the error codes of some of the partitions."""
        here: list[TopicPartition] = []
        elsewhere: list[TopicPartition] = []
        for one in partitions:
            (elsewhere if _is_elsewhere(self._cache, self._broker_id, *one) else here).append(one)
        if here:
            self._local.write(marker, here, done)
        if elsewhere:
            done(dict.fromkeys(elsewhere, Errors.NOT_LEADER_OR_FOLLOWER))  # to do: send WriteTxnMarkers


def _is_elsewhere(cache: MetadataCache, broker_id: int, topic: str, index: int) -> bool:
    """Return True if the metadata cache knows the partition, and its leader is another broker or none. Return False if
    this broker is the leader, or if the cache does not know the partition yet."""
    leader = cache.leader(topic, index)
    return leader is not None and leader.id != broker_id
