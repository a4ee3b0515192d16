"""Reads all records of partitions with librdkafka's consumer."""

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]


class Seen(NamedTuple):
    """A record. `timestamp` is -1 if its format has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Read(NamedTuple):
    """The records of one partition, and the consumer's position after them."""

    records: list[Seen]
    end: int


def consumed(bootstrap: str, partitions: Iterable[tuple[str, int]], isolation: str) -> dict[tuple[str, int], Read]:
    """Return all records of these partitions. `isolation`: read_committed or read_uncommitted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[tuple[str, int], list[Seen]] = {where: [] for where in partitions}
    ends: dict[tuple[str, int], int] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in found])
        while len(ends) < len(found):
            message = consumer.poll(30)
            assert message is not None, f"no end after 30 s of {sorted(found.keys() - ends.keys())}"
            where = message.topic(), message.partition()
            error = message.error()
            if error is None:
                kind, timestamp = message.timestamp()
                found[where].append(
                    Seen(
                        message.offset(),
                        timestamp if kind else -1,
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                    )
                )
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends[where] = message.offset()
    finally:
        consumer.close()
    return {where: Read(records, ends[where]) for where, records in found.items()}
