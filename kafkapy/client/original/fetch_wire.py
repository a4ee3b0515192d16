"""How the original consumer's fetchers meet brokers: who leads what, where a partition begins, what a fetch brings.

Two kinds: brokers of Kafka 0.8 and later here, those of 0.7 in `brokers_07`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from kafkapy._ext.entry_walk import entries_end
from kafkapy.client.admin import Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import NAMES_UNTIL
from kafkapy.client.original.settings import ConsumerSettings
from kafkapy.client.original.streams import OwnedPartition
from kafkapy.errors import KafkaError
from kafkapy.protocol.apis import FETCH

Address = tuple[str, int]


class Fetched(NamedTuple):
    """What a fetch brought of a partition: batches, of which the last may be cut off.

    after: where to fetch next; None: nothing is whole, for the first batch is larger than the fetch.
    size: of that batch, 0 where that is not known.
    problem: what is wrong with the data, if it is known already.
    """

    where: TopicPartition
    error_code: int
    data: memoryview
    after: int | None
    size: int = 0
    problem: str = ""


class FetchWire(Protocol):
    """A connection to one broker, made when it is first needed. For one thread."""

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        """Raises ClientError, KafkaError; the connection is to be closed then."""

    def close(self) -> None: ...


class Brokers(Protocol):
    """Those of one cluster. For one thread, but `wire`, whose connections are for a thread each."""

    def look_up(self, partitions: Iterable[OwnedPartition]) -> None:
        """Learns who leads them. Raises ClientError, KafkaError, ValueError when nobody tells."""

    def leader(self, owned: OwnedPartition) -> Address | None:
        """None while there is none."""

    def edge(self, owned: OwnedPartition, at: int) -> int:
        """The offset at EARLIEST or LATEST. Raises ClientError, KafkaError."""

    def wire(self, address: Address) -> FetchWire: ...

    def close(self) -> None: ...


class KafkaBrokers:
    """Args: open_cluster: connects to the brokers that are there now; raises ClientError, also when there are none."""

    def __init__(self, settings: ConsumerSettings, open_cluster: Callable[[], Cluster]) -> None:
        self._settings = settings
        self._open_cluster = open_cluster
        self._cluster: Cluster | None = None

    def look_up(self, partitions: Iterable[OwnedPartition]) -> None:
        try:
            if self._cluster is None:
                self._cluster = self._open_cluster()
            self._cluster.refresh({owned.where[0] for owned in partitions})
        except (ClientError, KafkaError, ValueError):
            self.close()
            raise

    def leader(self, owned: OwnedPartition) -> Address | None:
        assert self._cluster is not None
        topic = self._cluster.topics.get(owned.where[0])
        partition = topic.partitions.get(owned.where[1]) if topic is not None else None
        broker = self._cluster.brokers.get(partition.leader) if partition is not None else None
        return None if broker is None else (broker.host, broker.port)

    def edge(self, owned: OwnedPartition, at: int) -> int:
        assert self._cluster is not None
        return Admin(self._cluster).offsets_now({owned.where: at})[owned.where].offset

    def wire(self, address: Address) -> KafkaWire:
        return KafkaWire(address, self._settings)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


class KafkaWire:
    def __init__(self, address: Address, settings: ConsumerSettings) -> None:
        self._address = address
        self._settings = settings
        self._connection: Connection | None = None
        self._first = 0

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        settings = self._settings
        if self._connection is None:
            self._connection = Connection(
                *self._address,
                client_id=settings.client_id,
                timeout_s=settings.socket_timeout_ms / 1000,
                old_brokers=True,
            )
        # Brokers fill an answer in the order asked: another partition comes first each time, so that none starves.
        self._first = (self._first + 1) % len(partitions)
        topics: dict[str, list[Any]] = {}
        for owned in (*partitions[self._first :], *partitions[: self._first]):
            one = FETCH.Request.Topics.Partitions(
                partition=owned.where[1],
                fetch_offset=owned.fetch_from,
                partition_max_bytes=settings.fetch_message_max_bytes,
            )
            topics.setdefault(owned.where[0], []).append(one)
        request = FETCH.Request(
            max_wait_ms=max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=0x7FFFFFFF,
            topics=[FETCH.Request.Topics(topic=name, partitions=ones) for name, ones in topics.items()],
        )
        self._connection.send(FETCH, request, at_most=NAMES_UNTIL)
        _, response = self._connection.receive(self._connection.timeout_s + max_wait_ms / 1000)
        if response.error_code:
            raise KafkaError(response.error_code)
        return [
            _fetched((topic.topic, one.partition_index), one.error_code, one.records)
            for topic in response.responses
            for one in topic.partitions
        ]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _fetched(where: TopicPartition, error_code: int, records: bytes | None) -> Fetched:
    data = memoryview(records or b"")
    whole, size, after = entries_end(data)
    # What is no batch is for the stream to refuse, when it comes to it.
    cut = bool(data) and whole == 0 and size >= 0
    return Fetched(where, error_code, data, None if cut else after, max(size, 0))
