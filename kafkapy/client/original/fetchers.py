"""Which broker each owned partition is fetched from: leaders are found, and found again when they move.

Source: Kafka's ConsumerFetcherManager and its LeaderFinderThread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from kafkapy.client.admin import EARLIEST, LATEST
from kafkapy.client.errors import ClientError
from kafkapy.client.original.broker_fetcher import BrokerFetcher
from kafkapy.client.original.fetch_wire import Brokers
from kafkapy.client.original.settings import ConsumerSettings
from kafkapy.client.original.streams import OwnedPartition
from kafkapy.errors import KafkaError, is_retriable

log = logging.getLogger(__name__)


class Fetchers:
    """A thread that looks for leaders, and one for each broker that leads something."""

    def __init__(self, settings: ConsumerSettings, brokers: Brokers) -> None:
        self._settings = settings
        self._brokers = brokers
        self._by_address: dict[tuple[str, int], BrokerFetcher] = {}
        self._homeless: list[OwnedPartition] = []
        self._again: list[OwnedPartition] = []  # a moment later: a leader may be about to move
        self._news = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kafkapy-leader-finder", daemon=True)
        self._thread.start()

    def start(self, partitions: Iterable[OwnedPartition]) -> None:
        """Fetches them from now on, until their streams have taken them away."""
        with self._news:
            self._homeless += partitions
            self._news.notify()

    def try_again(self, partitions: Iterable[OwnedPartition]) -> None:
        """The same, after refresh.leader.backoff.ms."""
        with self._news:
            self._again += partitions
            self._news.notify()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join(self._settings.socket_timeout_ms / 1000)

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._closed and not self._homeless and not self._again:
                    self._news.wait()
                if self._again:
                    self._news.wait_for(lambda: self._closed, self._settings.refresh_leader_backoff_ms / 1000)
                if self._closed:
                    break
                wanted = self._again + self._homeless
                self._again, self._homeless = [], []
            self.try_again(self._find([owned for owned in wanted if not owned.taken_away]))
        for fetcher in self._by_address.values():
            fetcher.close()
        for fetcher in self._by_address.values():
            fetcher.join(self._settings.socket_timeout_ms / 1000)
        self._brokers.close()

    def _find(self, wanted: list[OwnedPartition]) -> list[OwnedPartition]:
        """Hands partitions to those who fetch from their leaders; returns those that are to be tried again."""
        if not wanted:
            return []
        try:
            self._brokers.look_up(wanted)
        except (ClientError, KafkaError, ValueError) as error:
            log.info("no broker tells who leads what: %s", error)
            return wanted
        again = []
        for owned in wanted:
            try:
                if not self._place(owned):
                    again.append(owned)
            except (ClientError, KafkaError) as error:
                log.info("%s: tries again: %s", owned, error)
                if isinstance(error, KafkaError) and not is_retriable(error.code):
                    owned.stream.fail(owned, error)
                else:
                    again.append(owned)
        return again

    def _place(self, owned: OwnedPartition) -> bool:
        address = self._brokers.leader(owned)
        if address is None:
            return False
        if owned.fetch_from is None:
            at = EARLIEST if self._settings.auto_offset_reset == "smallest" else LATEST
            owned.stream.begin(owned, self._brokers.edge(owned, at))
        if address not in self._by_address:
            wire = self._brokers.wire(address)
            self._by_address[address] = BrokerFetcher(address, wire, self._settings, self.try_again)
        self._by_address[address].add([owned])
        return True
