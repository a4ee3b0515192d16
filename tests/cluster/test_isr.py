"""The ISR of a partition that kafkapy leads, with followers of Apache Kafka. Any of the three is the controller."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.replicas import differences
from tests.harness.cluster import Cluster
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(300)]
LEADER = 1
SETTINGS = {"zookeeper.session.timeout.ms": "20000"}  # the controller does not notice that a broker is frozen


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), ("kafkapy", "kafka", "kafka"), SETTINGS) as running:
        yield running


def produce(cluster: Cluster, topic: str, count: int) -> None:
    """Produce records with acks=all, each in a request of its own."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": cluster[LEADER].address, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=delivered)
        assert producer.flush(60) == 0
    assert errors == []


def test_a_frozen_follower_leaves_the_isr_and_returns_to_it(cluster: Cluster) -> None:
    cluster.create_topic("frozen", 1, on=[(LEADER, 2, 3)])
    produce(cluster, "frozen", 3)
    frozen = next(number for number in (2, 3) if number != cluster.controller())
    epoch = cluster.stored_view()["frozen", 0].epoch
    cluster[frozen].freeze()
    produce(cluster, "frozen", 3)  # acknowledged when the controller has taken the frozen broker out of the ISR
    assert cluster.stored_view()["frozen", 0].isr == tuple(sorted({1, 2, 3} - {frozen}))
    cluster[frozen].thaw()
    eventually(lambda: cluster.stored_view()["frozen", 0].isr == (1, 2, 3), seconds=60)
    produce(cluster, "frozen", 3)
    assert cluster.stored_view()["frozen", 0].epoch == epoch  # the controller was asked; nobody was elected
    directories = {number: cluster[number].data / "frozen-0" for number in (1, 2, 3)}
    eventually(lambda: not differences(directories), seconds=60)


def test_records_are_deleted_on_all_replicas(cluster: Cluster) -> None:
    cluster.create_topic("deleted", 1, on=[(LEADER, 2, 3)])
    produce(cluster, "deleted", 5)
    admin = AdminClient({"bootstrap.servers": cluster[LEADER].address})
    (done,) = admin.delete_records([TopicPartition("deleted", 0, 3)], request_timeout=30).values()
    assert done.result(60).low_watermark == 3
    consumer = Consumer({"bootstrap.servers": cluster[LEADER].address, "group.id": "none"})
    assert consumer.get_watermark_offsets(TopicPartition("deleted", 0), 30) == (3, 5)
    consumer.close()
