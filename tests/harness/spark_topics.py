"""Topics for tests with Spark, created and filled by librdkafka, independent of Spark and of kafkapy's client."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PATIENCE_S = 30.0


class Record(NamedTuple):
    """A record to produce. The timestamp is in milliseconds, None for now; with partition None the key decides."""

    key: bytes | None
    value: bytes | None
    partition: int | None = 0
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Consumed(NamedTuple):
    """A record as a plain consumer gets it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic that keeps old records (tests choose times), and wait for it; `config` with underscores."""
    settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in config.items()}
    admin = _admin(bootstrap)  # must exist until the future is done
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_S)


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Move the log start offset of a partition, as retention does."""
    admin = _admin(bootstrap)
    (done,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
    done.result(PATIENCE_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = _admin(bootstrap)
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


def produce(bootstrap: str, topic: str, records: Iterable[Record], **config: str) -> None:
    """Produce the records and wait for all; `config` with underscores for dots (compression_type="gzip")."""
    producer = _producer(bootstrap, config)
    _send(producer, topic, records)
    assert producer.flush(PATIENCE_S) == 0


def transaction(bootstrap: str, topic: str, records: Iterable[Record], *, commit: bool) -> None:
    """Write one transaction with a new producer."""
    producer = _producer(bootstrap, {"transactional_id": f"{topic}-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    _send(producer, topic, records)
    producer.flush(PATIENCE_S)
    end = producer.commit_transaction if commit else producer.abort_transaction
    end(PATIENCE_S)


def consume(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Consumed]:
    """Return all current records, in the order of partitions and offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    partitions = set(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Consumed] = []
    while partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"no end of {topic} {partitions} after {len(found)} records"
        error = message.error()
        if error is None:
            found.append(_consumed(message))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            partitions.discard(message.partition())
    consumer.close()
    return sorted(found)


def _consumed(message: Any) -> Consumed:
    return Consumed(
        message.partition(), message.offset(), message.key(), message.value(), list(message.headers() or ())
    )


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def _producer(bootstrap: str, config: dict[str, str]) -> Producer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})


def _send(producer: Producer, topic: str, records: Iterable[Record]) -> None:
    for record in records:
        more: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        producer.produce(topic, record.value, record.key, headers=list(record.headers), **more)
