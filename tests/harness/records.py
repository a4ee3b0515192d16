"""Short helpers that create, fill and read topics with confluent-kafka."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def produce(bootstrap: str, topic: str, values: list[str], **settings: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), key=value.encode())
    assert producer.flush(30) == 0
    if transactional:
        producer.commit_transaction(30)


def create(bootstrap: str, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[topic.topic].result(30)


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    """Consume and commit `count` records in the group. Return their values."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    values: list[str] = []
    try:
        while len(values) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(values)} of {count} records came"
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(values)


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=30)
    finally:
        consumer.close()
    return sum(max(one.offset, 0) for one in found)
