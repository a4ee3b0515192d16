"""The project's own small client: a connection, the cluster's metadata, an admin, a producer and a consumer.

    from kafkapy.client import Admin, Consumer, Producer

    with Producer("127.0.0.1:9092") as producer:
        producer.send("greetings", b"hello", key=b"k")

    with Consumer("127.0.0.1:9092") as consumer:
        consumer.assign_topic("greetings")
        for record in consumer.records():
            print(record.offset, record.value)

    with GroupConsumer("127.0.0.1:9092", "billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in consumer.poll():
                print(record.offset, record.value)

    with TransactionalProducer("127.0.0.1:9092", "billing-1") as producer, producer.transaction():
        producer.send("invoices", b"...")
        producer.send_offsets(consumer.positions(), consumer.group_metadata())

Everything blocks and belongs to one thread. A failure of the connection is a `ClientError`; an error code from the
broker is a `kafkapy.errors.KafkaError`.
"""

from kafkapy.client.admin import Admin
from kafkapy.client.batch_fetcher import BatchFetcher, NothingFetched, OffsetOutOfRange
from kafkapy.client.cluster import Broker, Cluster, Partition, Topic
from kafkapy.client.connection import Connection
from kafkapy.client.consumer import Consumer, ConsumerRecord
from kafkapy.client.descriptions import NewTopic
from kafkapy.client.errors import (
    BrokerTimedOut,
    ClientError,
    CommitFailed,
    ConnectionFailed,
    GroupFailed,
    ProduceFailed,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
    UnsupportedByBroker,
)
from kafkapy.client.group_admin import GroupAdmin
from kafkapy.client.group_consumer import GroupConsumer
from kafkapy.client.group_types import GroupMetadata, OffsetAndMetadata, RebalanceListener
from kafkapy.client.producer import Producer
from kafkapy.client.transaction_ends import TransactionIdentity, end_transaction
from kafkapy.client.transactional_producer import TransactionalProducer
from kafkapy.client.txn_admin import TransactionAdmin

__all__ = [
    "Admin",
    "BatchFetcher",
    "Broker",
    "BrokerTimedOut",
    "ClientError",
    "Cluster",
    "CommitFailed",
    "Connection",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "GroupAdmin",
    "GroupConsumer",
    "GroupFailed",
    "GroupMetadata",
    "NewTopic",
    "NothingFetched",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "Partition",
    "ProduceFailed",
    "Producer",
    "ProducerFailed",
    "ProducerFenced",
    "RebalanceListener",
    "Topic",
    "TransactionAborted",
    "TransactionAdmin",
    "TransactionFailed",
    "TransactionIdentity",
    "TransactionalProducer",
    "UnsupportedByBroker",
    "end_transaction",
]
