"""The thread that fetches from one broker what the streams have room for.

Source: Kafka's AbstractFetcherThread and ConsumerFetcherThread. Unlike them it does not stop for a stream that is slow:
it asks for the other partitions meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.original.fetch_wire import Address, Fetched, FetchWire
from kafkapy.client.original.settings import ConsumerSettings
from kafkapy.client.original.streams import Chunk, OwnedPartition
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.runtime.addresses import host_port

log = logging.getLogger(__name__)

# How long the broker may wait for records while some streams are about to have room for others.
_HURRY_MS = 5

# What is to be done about a partition: it needs another leader, or an offset that is there.
GiveBack = Callable[[Iterable[OwnedPartition]], None]


class BrokerFetcher:
    """Runs from construction until `close`. Partitions that cannot be read here are given back by its thread."""

    def __init__(self, address: Address, wire: FetchWire, settings: ConsumerSettings, give_back: GiveBack) -> None:
        self._address = address
        self._wire = wire
        self._settings = settings
        self._give_back = give_back
        self._partitions: dict[TopicPartition, OwnedPartition] = {}
        self._news = threading.Condition()
        self._closed = False
        name = f"kafkapy-fetcher-{host_port(*address)}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, partitions: Iterable[OwnedPartition]) -> None:
        with self._news:
            for owned in partitions:
                owned.room = self._wake
                self._partitions[owned.where] = owned
            self._news.notify()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _wake(self) -> None:
        with self._news:
            self._news.notify()

    def _run(self) -> None:
        while True:
            asked, max_wait_ms = self._wait_for_room()
            if not asked:
                break
            try:
                fetched = self._wire.fetch(asked, max_wait_ms)
            except (ClientError, KafkaError) as error:
                log.info("fetching from %s: %s", host_port(*self._address), error)
                self._wire.close()
                self._leave(list(self._partitions.values()))
            else:
                self._take(asked, fetched)
        self._wire.close()

    def _wait_for_room(self) -> tuple[list[OwnedPartition], int]:
        """What to ask for, and how long the broker may wait for it; nothing when it is to end."""
        most = self._settings.queued_max_message_chunks
        with self._news:
            while not self._closed:
                for where, owned in list(self._partitions.items()):
                    if owned.taken_away or owned.failed:
                        del self._partitions[where]
                asked = [owned for owned in self._partitions.values() if owned.waiting < most]
                if asked:
                    all_of_them = len(asked) == len(self._partitions)
                    return asked, self._settings.fetch_wait_max_ms if all_of_them else _HURRY_MS
                self._news.wait()
        return [], 0

    def _take(self, asked: Iterable[OwnedPartition], fetched: Iterable[Fetched]) -> None:
        # Not those of `_partitions`: one of them may have been given up meanwhile, and taken again at another offset.
        by_name = {owned.where: owned for owned in asked}
        elsewhere = []
        for one in fetched:
            owned = by_name.get(one.where)
            if owned is None:  # nobody has asked for it
                continue
            if one.error_code:
                if self._failed(owned, one.error_code):
                    elsewhere.append(owned)
            elif one.data:
                self._hand_on(owned, one)
        if elsewhere:
            self._leave(elsewhere)

    def _hand_on(self, owned: OwnedPartition, fetched: Fetched) -> None:
        start = owned.fetch_from
        assert start is not None
        if fetched.problem:
            told = f"{owned} at offset {start}: {fetched.problem}"
            owned.stream.fail(owned, KafkaError(Errors.CORRUPT_MESSAGE, told))
        elif fetched.after is None:
            owned.stream.fail(owned, KafkaError(Errors.RECORD_LIST_TOO_LARGE, self._too_large(owned, fetched.size)))
        else:
            owned.fetch_from = max(start, fetched.after)
            owned.stream.put(Chunk(owned, fetched.data, start, fetched.after))

    def _too_large(self, owned: OwnedPartition, size: int) -> str:
        has = self._settings.fetch_message_max_bytes
        needs = f" of {size} bytes" if size > has else ""
        return (
            f"{owned} at offset {owned.fetch_from} has a message{needs} that is larger than one fetch: make "
            f"fetch.message.max.bytes larger than {has}"
        )

    def _failed(self, owned: OwnedPartition, code: int) -> bool:
        """Whether somebody is to look after it: who leads it now, or where it begins."""
        if code == Errors.OFFSET_OUT_OF_RANGE:
            log.warning(
                "%s at offset %s: %s Goes on at the %s record.",
                owned,
                owned.fetch_from,
                message_of(code),
                self._settings.auto_offset_reset,
            )
            owned.fetch_from = None
            return True
        if is_retriable(code):
            return True
        owned.stream.fail(owned, KafkaError(code, f"{owned} at offset {owned.fetch_from}: {message_of(code)}"))
        return False

    def _leave(self, partitions: list[OwnedPartition]) -> None:
        with self._news:
            for owned in partitions:
                if self._partitions.get(owned.where) is owned:
                    del self._partitions[owned.where]
        self._give_back(partitions)
