"""Producing to brokers of Kafka 0.7, for the original producer: looking up partitions and sending batches.

Source: ZKBrokerPartitionInfo, ConfigBrokerPartitionInfo and SyncProducer of Kafka 0.7.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkapy.client.addresses import parse_addresses
from kafkapy.client.cluster import Partition, Topic
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.original.kafka_07.wire import ANY_PARTITION, Connection07
from kafkapy.client.original.producing.batch_sender import BatchSender, fail
from kafkapy.client.original.producing.producer_batch import Item, ProducerBatch
from kafkapy.client.original.producing.producer_brokers import ZooKeeperBrokers
from kafkapy.client.original.producing.producer_config import ProducerConfig
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.compression import NAMES, NONE, SNAPPY, compress
from kafkapy.record.kafka07 import build_message


class Cluster07:
    """The brokers and topics of a Kafka 0.7 cluster, with the part of Cluster's interface that the producer needs.

    The partitions of a topic are numbered consecutively over all brokers. A topic that does not exist yet has one
    partition on each broker. Without ZooKeeper, brokers choose the partition themselves.
    """

    def __init__(self, config: ProducerConfig, discovery: ZooKeeperBrokers | None) -> None:
        config.security.refuse_for_07()
        self.topics: dict[str, Topic] = {}
        self._timeout_s = config.request_timeout_s
        self._discovery = discovery
        if discovery is not None:
            self._brokers = discovery.brokers()
        else:
            self._brokers = dict(enumerate(parse_addresses(config.brokers)))
        self._numbers: dict[str, list[tuple[int, int]]] = {}  # topic -> (broker, the partition's number on it)
        self._by_node: dict[int, Connection07] = {}

    def refresh(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Read the partitions of the named topics into `topics`.

        If ZooKeeper cannot be reached, use the partitions read before, or raise ConnectionFailed if there are none.
        """
        for topic in topics:
            try:
                self._numbers[topic] = self._read(topic) or [(node, 0) for node in self._brokers]
            except ConnectionFailed:
                if topic not in self._numbers:
                    raise
            found = self._numbers[topic]
            leaders = [node if node in self._brokers else -1 for node, _ in found]
            partitions = {number: Partition(number, leader, -1, (), ()) for number, leader in enumerate(leaders)}
            self.topics[topic] = Topic(topic, bytes(16), False, partitions)

    def _read(self, topic: str) -> list[tuple[int, int]]:
        """Return (broker, number on it) of each partition of the topic in ZooKeeper, or one of each listed broker."""
        if self._discovery is None:
            return [(node, ANY_PARTITION) for node in self._brokers]
        named = (name.split("-") for name in self._discovery.partitions(topic))
        return sorted((int(node), int(number)) for node, number in named)

    def ask_first(self, _: Sequence[str]) -> None:
        """Forget all topics and read the broker addresses from ZooKeeper again. The addresses passed in are ignored."""
        if self._discovery is not None:
            self._brokers = self._discovery.brokers()
        self.topics.clear()

    def connection(self, node: int) -> Connection07:
        """Return the connection to the broker with id `node`, a new connection if the broker's address has changed."""
        address = self._brokers[node]
        connection = self._by_node.get(node)
        if connection is None or connection.place != address:
            connection = self._by_node[node] = Connection07(*address, self._timeout_s)
        return connection

    def number(self, topic: str, partition: int) -> int:
        """Return the number that a partition has on its broker, where 0.7 counts each topic's partitions from 0."""
        return self._numbers[topic][partition][1]

    def close(self) -> None:
        for connection in self._by_node.values():
            connection.close()


class BatchSender07(BatchSender):
    """Sends to brokers of Kafka 0.7, which do not acknowledge messages.

    Unless acks is 0, each Produce is followed by a request that has a response, which shows that the broker has
    processed the Produce request. Keys only choose partitions and are not sent.
    """

    def __init__(self, cluster: Cluster07, config: ProducerConfig) -> None:
        super().__init__(cluster)
        if config.idempotent:
            raise ValueError("enable.idempotence is true, which brokers of Kafka 0.7 do not support")
        if config.codec > SNAPPY:
            raise ValueError(
                f"compression.codec is {NAMES[config.codec]}, which brokers of Kafka 0.7 do not support: use snappy"
            )
        self._cluster = cluster
        self._config = config
        self._largest = config.max_message_size

    def refuses(self, item: Item) -> Exception | None:
        if item.value is None:
            return KafkaError(Errors.INVALID_RECORD, "brokers of Kafka 0.7 do not support null messages")
        if len(item.value) > self._largest:  # the broker would drop it silently
            text = f"a message of {len(item.value)} bytes is larger than max.message.size, {self._largest}"
            return KafkaError(Errors.MESSAGE_TOO_LARGE, text)
        return None

    def _to_leaders(self, by_leader: Mapping[int, list[ProducerBatch]]) -> None:
        for node, batches in by_leader.items():
            sets = {batch: self._set_of(batch) for batch in batches}
            fit = [batch for batch, data in sets.items() if data is not None]
            named = [(batch.where[0], self._cluster.number(*batch.where), sets[batch] or b"") for batch in fit]
            try:
                if named:
                    self._cluster.connection(node).produce(named, wait=self._config.acks != 0)
            except ClientError as error:
                fail(fit, error)

    def _set_of(self, batch: ProducerBatch) -> bytes | None:
        """Return the message set to send for a batch.

        If the set is too large when compressed, set the batch's error and return None.
        """
        data = b"".join(build_message(item.value or b"") for item in batch.items)
        topics = self._config.compressed_topics
        if self._config.codec == NONE or (topics and batch.where[0] not in topics):
            return data
        packed = compress(self._config.codec, data)
        if len(packed) > self._largest:
            batch.error = KafkaError(Errors.MESSAGE_TOO_LARGE, "compressed, it is larger than max.message.size")
            return None
        return build_message(packed, codec=self._config.codec)
