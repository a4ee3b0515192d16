"""The project's own clients: small modern clients, and the clients that Kafka had from 0.7 to 0.10.

    from kafkapy.client import Admin, Consumer, RecordProducer

    with RecordProducer("127.0.0.1:9092") as producer:
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

All of the clients above block and must be used from one thread only. They raise a `ClientError` when a connection
fails, and a `kafkapy.errors.KafkaError` for an error code from the broker.

The original clients, with the class names and properties of their time, work with old and new brokers:

    with Producer({"metadata.broker.list": "127.0.0.1:9092", "producer.type": "async"}) as producer:
        producer.send(KeyedMessage("greetings", b"hello", b"k"))

    with SimpleConsumer("127.0.0.1", 9092) as consumer:
        for offset, message in consumer.fetch("greetings", 0, 0, 1 << 20):
            print(offset, message.value)

    with ConsumerConnector({"zookeeper.connect": "127.0.0.1:2181", "group.id": "billing"}) as connector:
        (stream,) = connector.create_message_streams_by_filter(Whitelist("orders.*"))
        for record in stream:
            print(record.offset, record.value)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkapy.client.administration.acl_admin import AclAdmin
from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.administration.descriptions import NewTopic
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.administration.partition_admin import PartitionAdmin, Reassignment
from kafkapy.client.administration.txn_admin import TransactionAdmin
from kafkapy.client.administration.user_admin import UserAdmin
from kafkapy.client.cluster import Broker, Cluster, Partition, Topic
from kafkapy.client.connection import Connection
from kafkapy.client.errors import (
    AuthenticationFailed,
    BadSecuritySettings,
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
from kafkapy.client.fetching.batch_fetcher import BatchFetcher, NothingFetched, OffsetOutOfRange
from kafkapy.client.fetching.consumer import Consumer, ConsumerRecord
from kafkapy.client.groups.group_consumer import GroupConsumer
from kafkapy.client.groups.group_types import GroupMetadata, OffsetAndMetadata, RebalanceListener
from kafkapy.client.original.errors import ConsumerIdTaken, ConsumerTimeout, OwnershipLost, RebalanceFailed
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.client.producing.transaction_ends import TransactionIdentity, end_transaction
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.client.security import Security
from kafkapy.extras import how_to_install

if TYPE_CHECKING:
    from kafkapy.client.original.consuming.connector import ConsumerConnector
    from kafkapy.client.original.encoders import DefaultEncoder, StringEncoder
    from kafkapy.client.original.filters import Blacklist, Whitelist
    from kafkapy.client.original.producing.producer import Producer
    from kafkapy.client.original.producing.producer_hooks import CallbackHandler
    from kafkapy.client.original.producing.producer_messages import (
        FailedToSendMessage,
        KeyedMessage,
        LostMessages,
        ProducerClosed,
        ProducerData,
        QueueFull,
    )
    from kafkapy.client.original.simple.messages import FetchRequest, MessageTooLarge
    from kafkapy.client.original.simple.simple_consumer import SimpleConsumer

__all__ = [
    "EARLIEST",
    "LATEST",
    "AclAdmin",
    "Admin",
    "AuthenticationFailed",
    "BadSecuritySettings",
    "BatchFetcher",
    "Blacklist",
    "Broker",
    "BrokerTimedOut",
    "CallbackHandler",
    "ClientError",
    "Cluster",
    "CommitFailed",
    "Connection",
    "ConnectionFailed",
    "Consumer",
    "ConsumerConnector",
    "ConsumerIdTaken",
    "ConsumerRecord",
    "ConsumerTimeout",
    "DefaultEncoder",
    "FailedToSendMessage",
    "FetchRequest",
    "GroupAdmin",
    "GroupConsumer",
    "GroupFailed",
    "GroupMetadata",
    "KeyedMessage",
    "LostMessages",
    "MessageTooLarge",
    "NewTopic",
    "NothingFetched",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OwnershipLost",
    "Partition",
    "PartitionAdmin",
    "ProduceFailed",
    "Producer",
    "ProducerClosed",
    "ProducerData",
    "ProducerFailed",
    "ProducerFenced",
    "QueueFull",
    "Reassignment",
    "RebalanceFailed",
    "RebalanceListener",
    "RecordProducer",
    "Security",
    "SimpleConsumer",
    "StringEncoder",
    "Topic",
    "TransactionAborted",
    "TransactionAdmin",
    "TransactionFailed",
    "TransactionIdentity",
    "TransactionalProducer",
    "UnsupportedByBroker",
    "UserAdmin",
    "Whitelist",
    "end_transaction",
]


# The module of each original client. The modules are imported on first use, so that commands
# that need none of them start faster.
_ORIGINAL = {
    "Blacklist": "filters",
    "CallbackHandler": "producing.producer_hooks",
    "ConsumerConnector": "consuming.connector",  # imports kazoo, which is an optional dependency
    "DefaultEncoder": "encoders",
    "FailedToSendMessage": "producing.producer_messages",
    "FetchRequest": "simple.messages",
    "KeyedMessage": "producing.producer_messages",
    "LostMessages": "producing.producer_messages",
    "MessageTooLarge": "simple.messages",
    "Producer": "producing.producer",
    "ProducerClosed": "producing.producer_messages",
    "ProducerData": "producing.producer_messages",
    "QueueFull": "producing.producer_messages",
    "SimpleConsumer": "simple.simple_consumer",
    "StringEncoder": "encoders",
    "Whitelist": "filters",
}


def __getattr__(name: str) -> Any:
    if name in _ORIGINAL:
        try:
            return getattr(import_module(f"kafkapy.client.original.{_ORIGINAL[name]}"), name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "kazoo":
                raise
            message = f"{name} needs the library kazoo: {how_to_install('zookeeper')}"
            raise ImportError(message, name=error.name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
