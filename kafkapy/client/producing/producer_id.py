"""The producer id and sequence numbers with which brokers detect duplicate batches of an idempotent producer.

Source: KIP-98, Kafka's TransactionManager and TxnPartitionMap.
"""

from collections import defaultdict
from typing import NamedTuple

from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.errors import KafkaError
from kafkapy.protocol.apis import INIT_PRODUCER_ID

NO_TIMEOUT = 0x7FFFFFFF  # the transaction time-out in the request of a producer without transactions


class ProducerId(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


NO_ID = ProducerId(-1, -1)


class ProducerSequences:
    """One producer's producer id, and the next sequence number of each partition.

    Attributes:
        current: The producer id and epoch. NO_ID until `acquire` has got them or `reset` has set them.
    """

    def __init__(self) -> None:
        self.current = NO_ID
        self._next: defaultdict[TopicPartition, int] = defaultdict(int)

    def acquire(self, cluster: Cluster) -> None:
        """Get a producer id from any broker, unless the producer has one already.

        Raise KafkaError if the broker refuses.
        """
        if self.current is not NO_ID:
            return
        request = INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT)

        def ask() -> ProducerId:
            response = cluster.any_connection().call(INIT_PRODUCER_ID, request)
            if response.error_code:
                raise KafkaError(response.error_code)
            return ProducerId(response.producer_id, response.producer_epoch)

        self.current = cluster.retry(ask)

    def next_sequence(self, where: TopicPartition, count: int) -> int:
        """Return the base sequence for the partition's next batch, which has `count` records."""
        sequence = self._next[where]
        self._next[where] = (sequence + count) & 0x7FFFFFFF
        return sequence

    def reset(self, to: ProducerId = NO_ID) -> None:
        """Use the producer id `to` from now on, and begin again with sequence number 0 in every partition.

        With NO_ID, the next `acquire` gets a new producer id.
        """
        self.current = to
        self._next.clear()
