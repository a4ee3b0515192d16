"""Fetches of the original consumer from brokers of Kafka 0.7."""

from collections.abc import Sequence

import pytest

from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.consuming.streams import OwnedPartition, Stream
from kafkapy.client.original.kafka_07 import brokers
from kafkapy.client.original.kafka_07.brokers import Wire07
from kafkapy.client.original.kafka_07.wire import Asked


class EmptyBroker:
    """The connection to a broker whose partitions are empty. It records the partitions of each fetch."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self.fetches: list[list[int]] = []

    def fetch(self, wanted: Sequence[Asked]) -> list[tuple[int, memoryview]]:
        self.fetches.append([one.partition for one in wanted])
        return [(0, memoryview(b""))] * len(wanted)


def fetches(monkeypatch: pytest.MonkeyPatch, max_bytes: int, partitions: int, count: int) -> list[list[int]]:
    """Fetch `count` times, and return the partitions of each fetch."""
    monkeypatch.setattr(brokers, "Connection07", EmptyBroker)
    wire = Wire07(("b", 9092), ConsumerSettings("zk", "g", fetch_message_max_bytes=max_bytes))
    stream = Stream()
    owned = [OwnedPartition(("t", f"8-{number}"), stream, 0) for number in range(partitions)]
    results = [[one.where[1] for one in wire.fetch(owned, 0)] for _ in range(count)]
    connection = wire._connection
    assert isinstance(connection, EmptyBroker)
    assert connection.fetches == results
    return results


def test_partitions_take_turns_if_their_data_could_be_too_much_for_one_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fetches(monkeypatch, 300 << 20, 8, 4) == [[0, 1, 2], [3, 4, 5], [6, 7, 0], [1, 2, 3]]


def test_a_partition_whose_data_could_be_too_much_for_a_response_is_fetched_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fetches(monkeypatch, 1 << 30, 2, 3) == [[0], [1], [0]]


def test_a_fetch_is_for_as_many_partitions_as_its_number_of_them_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    most = (1 << 15) - 1
    assert [len(fetch) for fetch in fetches(monkeypatch, 1, most + 1, 2)] == [most, most]
