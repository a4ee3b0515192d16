"""Passes each owned partition to the thread that fetches from its leader, and again when the leader changes.

Source: Kafka's ConsumerFetcherManager and its LeaderFinderThread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from kafkapy.client.administration.admin import EARLIEST, LATEST
from kafkapy.client.errors import AuthenticationFailed, BadSecuritySettings, ClientError
from kafkapy.client.original.consuming.broker_fetcher import BrokerFetcher
from kafkapy.client.original.consuming.fetch_wire import Brokers
from kafkapy.client.original.consuming.problem_log import ProblemLog
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.consuming.streams import OwnedPartition
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.runtime.threads import NoThread

log = logging.getLogger(__name__)

_NO_LEADERS = "the leaders of partitions cannot be looked up"
_NO_OFFSETS = "the offsets to start at cannot be looked up"


class Fetchers:
    """All fetching threads of a consumer.

    There is one thread that looks up leaders, and a BrokerFetcher, a fetching thread, for each broker that leads owned
    partitions.
    """

    def __init__(self, settings: ConsumerSettings, brokers: Brokers) -> None:
        self._settings = settings
        self._brokers = brokers
        self._problems = ProblemLog(log, settings.group_id)
        self._by_address: dict[tuple[str, int], BrokerFetcher] = {}
        self._without_leader: list[OwnedPartition] = []
        self._retry_later: list[OwnedPartition] = []  # after a pause, as their leaders may be about to change
        self._changed = threading.Condition()
        self._closed = False
        self._lacks_threads = False  # the last attempt to start a fetcher's thread failed, and that was logged
        self._thread = threading.Thread(target=self._run, name="kafkapy-leader-finder", daemon=True)
        self._thread.start()

    def start(self, partitions: Iterable[OwnedPartition]) -> None:
        """Fetch these partitions from now on, until their streams revoke them."""
        with self._changed:
            self._without_leader += partitions
            self._changed.notify()

    def try_again(self, partitions: Iterable[OwnedPartition]) -> None:
        """Look up the leaders of these partitions after refresh.leader.backoff.ms, and then fetch the partitions."""
        with self._changed:
            self._retry_later += partitions
            self._changed.notify()

    def close(self) -> None:
        """Stop all threads and wait for them, each up to socket.timeout.ms."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(self._settings.socket_timeout_ms / 1000)

    def _run(self) -> None:
        """Look up leaders and start fetchers until `close`, then stop the fetchers.

        This is the leader finder's function.
        """
        while True:
            with self._changed:
                while not self._closed and not self._without_leader and not self._retry_later:
                    self._changed.wait()
                if self._retry_later:
                    self._changed.wait_for(lambda: self._closed, self._settings.refresh_leader_backoff_ms / 1000)
                if self._closed:
                    break
                wanted = self._retry_later + self._without_leader
                self._retry_later, self._without_leader = [], []
            self.try_again(self._find([owned for owned in wanted if not owned.revoked]))
        for fetcher in self._by_address.values():
            fetcher.close()
        for fetcher in self._by_address.values():
            fetcher.join(self._settings.socket_timeout_ms / 1000)
        self._brokers.close()

    def _find(self, wanted: list[OwnedPartition]) -> list[OwnedPartition]:
        """Pass partitions to the fetchers of their leaders.

        Return the partitions for which that has to be tried again later.
        """
        if not wanted:
            return []
        try:
            self._brokers.look_up(wanted)
        except (AuthenticationFailed, BadSecuritySettings) as error:
            for owned in wanted:
                owned.stream.fail(owned, error)
            return []
        except (ClientError, KafkaError, ValueError) as error:
            self._problems.report(_NO_LEADERS, str(error), level=logging.INFO)
            return wanted
        self._problems.resolved(_NO_LEADERS)
        again = []
        problems: set[str] = set()
        refusal: NoThread | None = None
        for owned in wanted:
            try:
                if not self._assign(owned):
                    again.append(owned)
            except (ClientError, KafkaError) as error:
                if isinstance(error, KafkaError) and not is_retriable(error.code):
                    owned.stream.fail(owned, error)
                else:
                    problems.add(str(error))
                    again.append(owned)
            except NoThread as error:
                again.append(owned)
                refusal = error
        if problems:
            self._problems.report(_NO_OFFSETS, min(problems), level=logging.INFO)
        else:
            self._problems.resolved(_NO_OFFSETS)
        if refusal is not None and not self._lacks_threads:
            log.warning("some partitions are not fetched yet, and are tried again: %s", refusal)
        self._lacks_threads = refusal is not None
        return again

    def _assign(self, owned: OwnedPartition) -> bool:
        """Pass a partition to the fetcher of its leader. Return False if the partition has no leader.

        A partition without a start offset first gets the start offset that auto.offset.reset selects. Raises
        ClientError, KafkaError or NoThread.
        """
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
