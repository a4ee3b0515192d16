"""Access to brokers of Kafka 0.7 for the fetchers of the original consumer.

A partition's name contains the id of its broker. The broker responds to a fetch at once, even without data, so the
client waits between fetches. Offsets are byte positions. Fetched messages are converted to message format 0.
Source: Fetcher, FetcherRunnable and ZookeeperConsumerConnector of Kafka 0.7.2. Imports kazoo.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.original.consuming.fetch_wire import Fetched
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.consuming.streams import OwnedPartition
from kafkapy.client.original.kafka_07.wire import Asked, Connection07, most_partitions
from kafkapy.client.original.znodes.cluster_tree import Address, ClusterTree
from kafkapy.record.conversion_07 import later_set
from kafkapy.record.kafka07 import LENGTH, CorruptMessage


class Brokers07:
    """The brokers of a Kafka 0.7 cluster: implements the protocol `fetch_wire.Brokers`."""

    def __init__(self, settings: ConsumerSettings, tree: ClusterTree) -> None:
        settings.security.refuse_for_07()
        self._settings = settings
        self._tree = tree
        self._addresses: dict[int, Address] = {}

    def look_up(self, partitions: Iterable[OwnedPartition]) -> None:
        try:
            self._addresses = self._tree.brokers()
        except (KazooException, KazooTimeoutError) as error:
            raise ConnectionFailed(f"the brokers cannot be read from ZooKeeper: {type(error).__name__}") from None

    def leader(self, owned: OwnedPartition) -> Address | None:
        return self._addresses.get(int(owned.partition[1].partition("-")[0]))

    def edge(self, owned: OwnedPartition, at: int) -> int:
        address = self.leader(owned)
        if address is None:
            raise ConnectionFailed(f"the broker of {owned} is not registered in ZooKeeper")
        connection = Connection07(*address, self._settings.socket_timeout_ms / 1000)
        try:
            offsets = connection.offsets_before(*owned.where, at, 1)
        finally:
            connection.close()
        return offsets[0] if offsets else 0

    def wire(self, address: Address) -> Wire07:
        return Wire07(address, self._settings)

    def close(self) -> None:
        pass


class Wire07:
    """A connection that fetches from one broker of Kafka 0.7: implements the protocol `fetch_wire.FetchWire`."""

    def __init__(self, address: Address, settings: ConsumerSettings) -> None:
        self._connection = Connection07(*address, settings.socket_timeout_ms / 1000)
        self._max_bytes = settings.fetch_message_max_bytes
        self._most = most_partitions(self._max_bytes)
        self._next = 0  # the position at which the next turn begins

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        partitions = self._turn(partitions)
        asked = [Asked(*owned.where, owned.fetch_from or 0, self._max_bytes) for owned in partitions]
        answers = self._connection.fetch(asked)
        if not any(code or data for code, data in answers):
            time.sleep(max_wait_ms / 1000)
        return [
            _fetched(owned, one, code, data)
            for owned, one, (code, data) in zip(partitions, asked, answers, strict=True)
        ]

    def close(self) -> None:
        self._connection.close()

    def _turn(self, partitions: Sequence[OwnedPartition]) -> Sequence[OwnedPartition]:
        """Return the partitions to fetch, beginning with the one after those of the previous turn."""
        first = self._next % len(partitions)
        turn = [*partitions[first:], *partitions[:first]][: self._most]
        self._next = first + len(turn)
        return turn


def _fetched(owned: OwnedPartition, asked: Asked, code: int, data: memoryview) -> Fetched:
    """Return the Fetched (the fetch result of one partition), with the messages converted to message format 0.

    `code` is the error code and `data` the message set in the broker's response.
    """
    if code or not data:
        return Fetched(owned.where, code, data, asked.offset)
    try:
        records, after = later_set(data, asked.offset)
    except CorruptMessage as error:
        return Fetched(owned.where, 0, data, None, problem=str(error))
    if after == asked.offset:
        size = int.from_bytes(data[:LENGTH], "big") + LENGTH if len(data) >= LENGTH else 0
        return Fetched(owned.where, 0, data, None, size)
    return Fetched(owned.where, 0, memoryview(records), after)
