"""Groups, offsets and transactions of the coordinators survive a stop and a SIGKILL of the broker.

librdkafka continues by itself when the broker is back on its port.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness import brokers

TOPIC, COPY = "restarted", "restarted-copy"
TIMEOUT = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Restartable:
    """A broker that can be restarted with the same data and port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = brokers.free_port()
        self.start()

    def start(self) -> None:
        self._broker = brokers.KafkapyBroker(self._directory, SETTINGS, port=self._port)
        self.bootstrap = self._broker.bootstrap

    def stop(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        self._broker.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restartable]:
    broker = Restartable(tmp_path)
    yield broker
    with contextlib.suppress(AssertionError):
        broker.kill()


@contextlib.contextmanager
def consumer(bootstrap: str, group: str = "readers", **other: Any) -> Iterator[Consumer]:
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            **other,
        }
    )
    client.subscribe([TOPIC])
    try:
        yield client
    finally:
        client.close()


def producer(bootstrap: str, transactional_id: str = "writer") -> Producer:
    client = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    client.init_transactions(TIMEOUT)
    return client


def write(client: Producer, values: list[str], *, commit: bool = True, topic: str = TOPIC) -> None:
    client.begin_transaction()
    for value in values:
        client.produce(topic, value.encode())
    if commit:
        client.commit_transaction(TIMEOUT)
    else:
        client.flush(TIMEOUT)


def read(client: Consumer, count: int) -> list[str]:
    values: list[str] = []
    while len(values) < count:
        message = client.poll(TIMEOUT)
        assert message is not None, f"{len(values)} of {count} records came"
        assert message.error() is None, message.error()
        values.append(message.value().decode())
    return values


def committed(client: Consumer) -> int:
    return int(client.committed([TopicPartition(TOPIC, 0)], TIMEOUT)[0].offset)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_group_resumes_where_it_was(broker: Restartable, end: str) -> None:
    first = producer(broker.bootstrap)
    write(first, ["a", "b", "c"])
    with consumer(broker.bootstrap) as reader:
        assert read(reader, 3) == ["a", "b", "c"]
        reader.commit(asynchronous=False)
        getattr(broker, end)()
        broker.start()
        write(producer(broker.bootstrap), ["d", "e"])  # fences the first producer by the same id
        assert read(reader, 2) == ["d", "e"]
        reader.commit(asynchronous=False)
    with consumer(broker.bootstrap) as other:  # the offsets include the marker of the first transaction
        assert committed(other) == 6
    with pytest.raises(Exception, match=r"(?i)fenced"):
        write(first, ["never"])


def test_an_open_transaction_is_aborted_by_the_next_producer(broker: Restartable) -> None:
    write(producer(broker.bootstrap), ["lost"], commit=False)
    with consumer(broker.bootstrap) as reader:
        broker.kill()
        broker.start()
        write(producer(broker.bootstrap), ["kept"])
        assert read(reader, 1) == ["kept"]


def test_offsets_in_a_transaction_are_committed_only_with_it(broker: Restartable) -> None:
    write(producer(broker.bootstrap), ["a", "b", "c"])
    with consumer(broker.bootstrap) as reader:
        read(reader, 3)
        copier = producer(broker.bootstrap, "copier")

        def copy(offset: int) -> None:
            copier.begin_transaction()
            copier.produce(COPY, b"copied")
            copier.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, offset)], reader.consumer_group_metadata(), TIMEOUT
            )

        copy(1)
        copier.commit_transaction(TIMEOUT)
        assert committed(reader) == 1
        copy(2)
        copier.abort_transaction(TIMEOUT)
        assert committed(reader) == 1
        copy(3)
        copier.flush(TIMEOUT)
        broker.kill()
        broker.start()
        copier = producer(broker.bootstrap, "copier")  # aborts the transaction that the crash left open
        assert committed(reader) == 1
        copy(2)
        copier.commit_transaction(TIMEOUT)
        assert committed(reader) == 2
