"""Many real producers whose large requests together exceed queued.max.request.bytes lose no record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness import brokers

LARGEST = 1 << 20
SETTINGS = {
    "socket.request.max.bytes": str(2 * LARGEST),
    "message.max.bytes": str(LARGEST),
    "queued.max.request.bytes": str(2 * LARGEST),
    "num.network.threads": "2",
}
PRODUCERS, RECORDS, SIZE = 8, 40, 90_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = brokers.start(tmp_path_factory.mktemp("broker"), SETTINGS)
    yield running.bootstrap
    running.stop()


def test_producers_that_exceed_the_memory_together_lose_nothing(bootstrap: str) -> None:
    topic = "large"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PRODUCERS, 1)]).values():
        future.result(20)
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "batch.size": LARGEST}
    producers = [Producer(settings) for _ in range(PRODUCERS)]
    failed: list[object] = []
    for number in range(RECORDS):
        for partition, producer in enumerate(producers):
            value = number.to_bytes(4, "big") * (SIZE // 4)
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error)
            )
            producer.poll(0)
    assert [producer.flush(60) for producer in producers] == [0] * PRODUCERS
    assert failed == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        for partition in range(PRODUCERS):
            consumer.assign([TopicPartition(topic, partition, 0)])
            numbers: list[int] = []
            while len(numbers) < RECORDS:
                for message in consumer.consume(RECORDS, 20):
                    assert message.error() is None
                    numbers.append(int.from_bytes(message.value()[:4], "big"))
            assert numbers == list(range(RECORDS))
    finally:
        consumer.close()
