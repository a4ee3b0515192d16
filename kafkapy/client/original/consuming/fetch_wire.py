"""The original consumer's access to brokers: leaders, first and last offsets, fetches.

This module is for brokers of Kafka 0.8 and later; `brokers_07` for those of 0.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from kafkapy._ext.entry_walk import entries_end
from kafkapy.client.administration.admin import Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError
from kafkapy.client.fetching.engine import NAMES_UNTIL, FetchedPartition, Turns, fetch_request, fetched_partitions
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.consuming.streams import OwnedPartition
from kafkapy.errors import KafkaError
from kafkapy.protocol.apis import FETCH

Address = tuple[str, int]


class Fetched(NamedTuple):
    """The batches of one partition from one fetch. The last batch may be incomplete.

    after: The offset of the next fetch. None: no batch is complete, as the first one is larger than the fetch.
    size: The size of that batch, 0 if it is not known.
    problem: What is wrong with the data, if that is already known.
    """

    where: TopicPartition
    error_code: int
    data: memoryview
    after: int | None
    size: int = 0
    problem: str = ""


class FetchWire(Protocol):
    """A connection to one broker, opened on first use. For one thread."""

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        """Return the fetched data. Raises ClientError or KafkaError; then close the connection."""

    def close(self) -> None: ...


class Brokers(Protocol):
    """The brokers of one cluster. For one thread, except the connections that `wire` returns: one thread each."""

    def look_up(self, partitions: Iterable[OwnedPartition]) -> None:
        """Look up the leaders of partitions. Raises ClientError, KafkaError or ValueError if that fails."""

    def leader(self, owned: OwnedPartition) -> Address | None:
        """Return the address of the partition's leader, None if it has none."""

    def edge(self, owned: OwnedPartition, at: int) -> int:
        """Return the offset at EARLIEST or LATEST. Raises ClientError, KafkaError."""

    def wire(self, address: Address) -> FetchWire:
        """Return a new connection to a broker."""

    def close(self) -> None: ...


class KafkaBrokers:
    """Brokers of Kafka 0.8 and later.

    Args:
        open_cluster: Returns a Cluster for the registered brokers. Raises ClientError, also if there are none.
    """

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
    """A connection to a broker of Kafka 0.8 or later."""

    def __init__(self, address: Address, settings: ConsumerSettings) -> None:
        self._address = address
        self._settings = settings
        self._connection: Connection | None = None
        self._turns = Turns()

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        settings = self._settings
        if self._connection is None:
            self._connection = Connection(
                *self._address,
                client_id=settings.client_id,
                timeout_s=settings.socket_timeout_ms / 1000,
                old_brokers=True,
            )
        wanted = []
        for owned in self._turns.next(partitions):
            assert owned.fetch_from is not None
            wanted.append((owned.where, owned.fetch_from, settings.fetch_message_max_bytes))
        request = fetch_request(wanted, max_wait_ms=max_wait_ms, min_bytes=settings.fetch_min_bytes)
        self._connection.send(FETCH, request, at_most=NAMES_UNTIL)
        _, response = self._connection.receive(self._connection.timeout_s + max_wait_ms / 1000)
        return [_fetched(one) for one in fetched_partitions(response)]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _fetched(one: FetchedPartition) -> Fetched:
    """Return the Fetched for a partition's part of a Fetch response."""
    whole, size, after = entries_end(one.data)
    # Malformed data passes: the stream refuses it after the chunks before it.
    return Fetched(one.where, one.error_code, one.data, None if not whole and size >= 0 else after, max(size, 0))
