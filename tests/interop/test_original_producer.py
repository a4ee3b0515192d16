"""The original producer and SimpleConsumer work with Apache Kafka 0.8.2.2, Apache Kafka 3.9.1 and kafkapy."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.client.original.partitioners import DefaultPartitioner
from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_messages import FailedToSendMessage, KeyedMessage
from kafkapy.client.original.simple.messages import FetchRequest, MessageTooLarge
from kafkapy.client.original.simple.simple_consumer import EARLIEST, LATEST, MAX_BUFFER, SimpleConsumer
from tests.harness.broker_08 import Kafka08Broker
from tests.harness.brokers import KafkaBroker, KafkapyBroker
from tests.harness.zookeeper import ZooKeeper

pytestmark = pytest.mark.other_runtime

PARTITIONS = 3


class Place(NamedTuple):
    bootstrap: str
    zookeeper: str
    numbered: bool  # the broker supports idempotence


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture(scope="module", params=["kafka-0.8.2.2", "kafka-3.9.1", "kafkapy"])
def place(
    request: pytest.FixtureRequest, keeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp(request.param)
    settings = {"num.partitions": str(PARTITIONS)}
    broker: Kafka08Broker | KafkaBroker | KafkapyBroker
    zookeeper = f"{keeper.address}/{request.param}"
    if request.param == "kafka-0.8.2.2":
        broker = Kafka08Broker(directory, zookeeper)
    elif request.param == "kafka-3.9.1":
        broker = KafkaBroker(directory, settings, zookeeper=zookeeper)
    else:
        broker = KafkapyBroker(directory, {**settings, "zookeeper.connect": zookeeper})
    yield Place(broker.bootstrap, zookeeper, request.param != "kafka-0.8.2.2")
    broker.stop()


def consumer_of(place: Place, *, max_buffer: int = MAX_BUFFER) -> SimpleConsumer:
    host, _, port = place.bootstrap.rpartition(":")
    return SimpleConsumer(host, int(port), max_buffer=max_buffer)


def read(place: Place, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Return key and value of all records, by partition."""
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    with consumer_of(place) as consumer:
        for partition in range(PARTITIONS):
            offset = 0
            while messages := list(part := consumer.fetch(topic, partition, offset, 5000)):
                found.setdefault(partition, []).extend((message.key, message.value) for _, message in messages)
                offset = part.next_offset
    return found


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_sent_messages_are_stored_in_the_keys_partition_in_order(place: Place, kind: str, codec: str) -> None:
    topic = f"sent-{kind}-{codec}"
    properties = {"metadata.broker.list": place.bootstrap, "producer.type": kind, "compression.codec": codec}
    with Producer({**properties, "queue.time": "50"}) as producer:
        for start in range(0, 600, 100):
            producer.send([KeyedMessage(topic, b"%d" % n, b"k%d" % (n % 7)) for n in range(start, start + 100)])
    assert producer.stats["failed"] == 0
    found = read(place, topic)
    assert sum(map(len, found.values())) == 600
    for partition, records in found.items():
        for key in {key for key, _ in records}:
            assert DefaultPartitioner().partition(key, PARTITIONS) == partition
            numbers = [int(value or b"") for one, value in records if one == key]
            assert numbers == sorted(numbers)


def test_idempotence_works_or_is_refused_in_a_sentence(place: Place) -> None:
    properties = {"metadata.broker.list": place.bootstrap, "enable.idempotence": "true"}
    with Producer(properties) as producer:
        messages = [KeyedMessage("numbered", b"%d" % number) for number in range(10)]
        if place.numbered:
            producer.send(messages)
            producer.send(messages)
            assert sum(map(len, read(place, "numbered").values())) == 20
        else:
            with pytest.raises(FailedToSendMessage, match="cannot do InitProducerId"):
                producer.send(messages)


def test_brokers_are_found_through_zookeeper(place: Place) -> None:
    with Producer({"zk.connect": place.zookeeper, "serializer.class": "kafka.serializer.StringEncoder"}) as producer:
        producer.send(KeyedMessage("found", "ü", "key"))
    assert read(place, "found") == {DefaultPartitioner().partition("key", PARTITIONS): [(b"key", "ü".encode())]}


def test_ranges_large_messages_and_several_partitions(place: Place) -> None:
    with Producer({"metadata.broker.list": place.bootstrap}) as producer:
        producer.send(KeyedMessage("large", bytes(300_000), None, 0), KeyedMessage("large", b"small", None, 1))
    with consumer_of(place) as consumer:
        (one,) = consumer.fetch("large", 0, 0, 1000)
        assert len(one[1].value or b"") == 300_000
        assert consumer.get_offsets_before("large", 0, LATEST, 5) == [1, 0]
        assert consumer.get_offsets_before("large", 0, EARLIEST, 5) == [0]
        with pytest.raises(OffsetOutOfRange) as refused:
            consumer.fetch("large", 0, 44, 1000)
        assert (refused.value.earliest, refused.value.latest) == (0, 1)
        sets = consumer.multifetch([FetchRequest("large", partition, 0, 1_000_000) for partition in (1, 0, 2)])
        assert [[len(message.value or b"") for _, message in one] for one in sets] == [[5], [300_000], []]
    with consumer_of(place, max_buffer=100_000) as consumer, pytest.raises(MessageTooLarge, match="large-0"):
        consumer.fetch("large", 0, 0, 1000)
