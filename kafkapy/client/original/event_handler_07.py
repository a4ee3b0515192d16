"""What the producer needs of brokers of Kafka 0.7: where a topic's partitions are, and how messages get there.

Source: ZKBrokerPartitionInfo, ConfigBrokerPartitionInfo and SyncProducer of Kafka 0.7.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkapy.client.cluster import Partition, Topic, parse_addresses
from kafkapy.client.errors import ClientError
from kafkapy.client.original.event_handler_parcels import Item, Parcel
from kafkapy.client.original.event_handler_post import Post, fail
from kafkapy.client.original.producer_brokers import ZooKeeperBrokers
from kafkapy.client.original.producer_config import ProducerConfig
from kafkapy.client.original.wire_07 import ANY_PARTITION, Connection07
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.compression import NAMES, NONE, SNAPPY, compress
from kafkapy.record.kafka07 import build_message


class Cluster07:
    """As Cluster for who sends. A topic's partitions are counted through, broker by broker; a topic that is not there
    yet has one on each. Brokers that are only listed are asked to choose a partition themselves."""

    def __init__(self, config: ProducerConfig, discovery: ZooKeeperBrokers | None) -> None:
        self.topics: dict[str, Topic] = {}
        self._timeout_s = config.request_timeout_s
        self._discovery = discovery
        if discovery is not None:
            self._brokers = discovery.brokers()
        else:
            self._brokers = dict(enumerate(parse_addresses(config.brokers)))
        self._numbers: dict[str, list[tuple[int, int]]] = {}  # broker and number there, by our number
        self._by_node: dict[int, Connection07] = {}

    def refresh(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Raises ConnectionFailed where ZooKeeper does not tell."""
        for topic in topics:
            if self._discovery is None:
                found = [(node, ANY_PARTITION) for node in self._brokers]
            else:
                named = (name.split("-") for name in self._discovery.partitions(topic))
                found = sorted((int(node), int(number)) for node, number in named)
            self._numbers[topic] = found = found or [(node, 0) for node in self._brokers]
            leaders = [node if node in self._brokers else -1 for node, _ in found]
            partitions = {number: Partition(number, leader, -1, (), ()) for number, leader in enumerate(leaders)}
            self.topics[topic] = Topic(topic, bytes(16), False, partitions)

    def ask_first(self, _: Sequence[str]) -> None:
        """Brokers have come or gone: they, and topics, are looked up anew."""
        if self._discovery is not None:
            self._brokers = self._discovery.brokers()
        self.topics.clear()

    def connection(self, node: int) -> Connection07:
        address = self._brokers[node]
        connection = self._by_node.get(node)
        if connection is None or connection.place != address:
            connection = self._by_node[node] = Connection07(*address, self._timeout_s)
        return connection

    def number(self, topic: str, partition: int) -> int:
        """What the partition's own broker calls it."""
        return self._numbers[topic][partition][1]

    def close(self) -> None:
        for connection in self._by_node.values():
            connection.close()


class Post07(Post):
    """Brokers acknowledge nothing. Unless acks is 0 each request is followed by one that has an answer: when that
    comes, the broker has taken what was before it. Keys choose partitions, and are not sent."""

    def __init__(self, cluster: Cluster07, config: ProducerConfig) -> None:
        super().__init__(cluster)
        if config.idempotent:
            raise ValueError("enable.idempotence is true, which brokers of Kafka 0.7 do not know")
        if config.codec > SNAPPY:
            raise ValueError(f"compression.codec is {NAMES[config.codec]}; brokers of Kafka 0.7 know gzip and snappy")
        self._cluster = cluster
        self._config = config
        self._largest = config.max_message_size

    def refuses(self, item: Item) -> Exception | None:
        if item.value is None:
            return KafkaError(Errors.INVALID_RECORD, "brokers of Kafka 0.7 have no messages that are null")
        if len(item.value) > self._largest:  # the broker would drop it without a word
            told = f"a message of {len(item.value)} bytes is larger than max.message.size, {self._largest}"
            return KafkaError(Errors.MESSAGE_TOO_LARGE, told)
        return None

    def _to_leaders(self, by_leader: Mapping[int, list[Parcel]]) -> None:
        for node, parcels in by_leader.items():
            sets = {parcel: self._set_of(parcel) for parcel in parcels}
            fit = [parcel for parcel, data in sets.items() if data is not None]
            named = [(parcel.where[0], self._cluster.number(*parcel.where), sets[parcel] or b"") for parcel in fit]
            try:
                if named:
                    self._cluster.connection(node).produce(named, wait=self._config.acks != 0)
            except ClientError as error:
                fail(fit, error)

    def _set_of(self, parcel: Parcel) -> bytes | None:
        """None, and the parcel has its error, when it is too large as one compressed message."""
        data = b"".join(build_message(item.value or b"") for item in parcel.items)
        topics = self._config.compressed_topics
        if self._config.codec == NONE or (topics and parcel.where[0] not in topics):
            return data
        packed = compress(self._config.codec, data)
        if len(packed) > self._largest:
            parcel.error = KafkaError(Errors.MESSAGE_TOO_LARGE, "compressed, it is larger than max.message.size")
            return None
        return build_message(packed, codec=self._config.codec)
