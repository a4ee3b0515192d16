"""The end offsets of Kafka 0.7's partitions, which are byte positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.kafka_07.wire import LATEST, Connection07


def ends_07(
    brokers: Mapping[int, tuple[str, int]], partitions: Iterable[Partition], timeout_s: float
) -> dict[Partition, int]:
    """Return the ends of (topic, "BROKER-NUMBER"), except those of unregistered brokers. Raises ClientError."""
    found: dict[Partition, int] = {}
    connections: dict[int, Connection07] = {}
    try:
        for topic, name in sorted(partitions):
            broker, _, number = name.partition("-")
            if not number or int(broker) not in brokers:
                continue
            if int(broker) not in connections:
                connections[int(broker)] = Connection07(*brokers[int(broker)], timeout_s)
            found.update(
                ((topic, name), end) for end in connections[int(broker)].offsets_before(topic, int(number), LATEST, 1)
            )
    finally:
        for connection in connections.values():
            connection.close()
    return found
