"""The original consumer's access to brokers: finding leaders, the first and last offsets, and fetching.

This module has the common protocols and the implementation for Kafka 0.8 and later; `kafka_07.brokers` has the
implementation for 0.7.
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
    """The data that one fetch returned for one partition: record batches, of which the last may be incomplete.

    after: The offset of the next fetch. None if no batch is complete, as the first batch is larger than the fetch.
    size: The size in bytes of a first batch that is larger than the fetch, 0 if the size is not known.
    problem: The reason why the data is corrupt; empty if no damage was found so far.
    """

    where: TopicPartition
    error_code: int
    data: memoryview
    after: int | None
    size: int = 0
    problem: str = ""


class FetchWire(Protocol):
    """A connection to one broker for fetches, opened on first use. For one thread."""

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        """Fetch the given partitions, or in turns as many of them as fit in a response, and return the result for each.

        The broker waits up to `max_wait_ms` for data. Raises ClientError or KafkaError; the caller has to close the
        connection then.
        """

    def close(self) -> None: ...


class Brokers(Protocol):
    """The brokers of one cluster. For one thread; each connection that `wire` returns may be used by another thread."""

    def look_up(self, partitions: Iterable[OwnedPartition]) -> None:
        """Look up the leaders of the given partitions. Raises ClientError, KafkaError or ValueError if that fails."""

    def leader(self, owned: OwnedPartition) -> Address | None:
        """Return the address of the partition's leader, or None if the partition has no leader."""

    def edge(self, owned: OwnedPartition, at: int) -> int:
        """Return the first offset of a partition (`at` is EARLIEST) or its end offset (LATEST).

        Raises ClientError or KafkaError.
        """

    def wire(self, address: Address) -> FetchWire:
        """Return a new connection for fetches from the broker at an address."""

    def close(self) -> None: ...


class KafkaBrokers:
    """The brokers of a cluster of Kafka 0.8 or later: implements the protocol `Brokers`.

    Args:
        open_cluster: Returns a Cluster for the brokers in ZooKeeper. Raises ClientError, also if there are no brokers.
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
    """A connection for fetches from a broker of Kafka 0.8 or later: implements the protocol `FetchWire`."""

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
                security=settings.security,
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
    """Return the Fetched, the fetch result of one partition, for the partition's part of a Fetch response."""
    whole, size, after = entries_end(one.data)
    # Malformed data is passed on: the stream raises the error after it has returned the chunks before this data.
    return Fetched(one.where, one.error_code, one.data, None if not whole and size >= 0 else after, max(size, 0))
