"""A thread that fetches the partitions of one broker whose streams have room for more data.

Source: Kafka's AbstractFetcherThread and ConsumerFetcherThread. Here, a slow stream does not delay the fetches of other
partitions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.original.consuming.fetch_wire import Address, Fetched, FetchWire
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.consuming.streams import Chunk, OwnedPartition
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.threads import Thread

log = logging.getLogger(__name__)

# How long the broker may wait for records while other streams have no room but may soon have some.
_SHORT_WAIT_MS = 5

# Called with partitions that need another leader or another offset.
GiveBack = Callable[[Iterable[OwnedPartition]], None]


class BrokerFetcher:
    """A thread that fetches partitions from one broker, from construction until `close`.

    Partitions that this broker cannot serve are passed to `give_back`. The constructor raises NoThread if no thread can
    be started.
    """

    def __init__(self, address: Address, wire: FetchWire, settings: ConsumerSettings, give_back: GiveBack) -> None:
        self._address = address
        self._wire = wire
        self._settings = settings
        self._give_back = give_back
        self._partitions: dict[TopicPartition, OwnedPartition] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = Thread(self._run, f"kafkapy-fetcher-{host_port(*address)}")
        self._thread.start()

    def add(self, partitions: Iterable[OwnedPartition]) -> None:
        """Add partitions to the partitions that this thread fetches."""
        with self._changed:
            for owned in partitions:
                owned.room = self._wake
                self._partitions[owned.where] = owned
            self._changed.notify()

    def close(self) -> None:
        """Tell the thread to stop, without waiting for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for the thread to end."""
        self._thread.join(timeout_s)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        """Fetch until `close`. This is the thread's function."""
        while True:
            asked, max_wait_ms = self._wait_for_room()
            if not asked:
                break
            try:
                fetched = self._wire.fetch(asked, max_wait_ms)
            except (ClientError, KafkaError) as error:
                log.info("fetching from %s: %s", host_port(*self._address), error)
                self._wire.close()
                self._stop_fetching(list(self._partitions.values()))
            else:
                self._take(asked, fetched)
        self._wire.close()

    def _wait_for_room(self) -> tuple[list[OwnedPartition], int]:
        """Wait until the stream of some partition has room. Return such partitions and the fetch's max_wait_ms.

        Returns no partitions after `close`.
        """
        most = self._settings.queued_max_message_chunks
        with self._changed:
            while not self._closed:
                for where, owned in list(self._partitions.items()):
                    if owned.revoked or owned.failed:
                        del self._partitions[where]
                asked = [owned for owned in self._partitions.values() if owned.waiting < most]
                if asked:
                    all_of_them = len(asked) == len(self._partitions)
                    return asked, self._settings.fetch_wait_max_ms if all_of_them else _SHORT_WAIT_MS
                self._changed.wait()
        return [], 0

    def _take(self, asked: Iterable[OwnedPartition], fetched: Iterable[Fetched]) -> None:
        """Pass the fetched data to the streams of its partitions.

        Give back partitions that need another leader or offset.
        """
        # Use `asked`, not `_partitions`: a partition may have been revoked and claimed at another offset meanwhile.
        by_name = {owned.where: owned for owned in asked}
        elsewhere = []
        for one in fetched:
            owned = by_name.get(one.where)
            if owned is None:  # the response has more than was asked for
                continue
            if one.error_code:
                if self._failed(owned, one.error_code):
                    elsewhere.append(owned)
            # In Kafka 0.7, a compressed message with no messages in it moves the offset although there is no data.
            elif one.data or one.after not in (None, owned.fetch_from):
                self._put(owned, one)
        if elsewhere:
            self._stop_fetching(elsewhere)

    def _put(self, owned: OwnedPartition, fetched: Fetched) -> None:
        """Put the data fetched from one partition into its stream, or fail the partition if the data is unusable."""
        start = owned.fetch_from
        assert start is not None
        if fetched.problem:
            text = f"{owned} at offset {start}: {fetched.problem}"
            owned.stream.fail(owned, KafkaError(Errors.CORRUPT_MESSAGE, text))
        elif fetched.after is None:
            owned.stream.fail(owned, KafkaError(Errors.RECORD_LIST_TOO_LARGE, self._too_large(owned, fetched.size)))
        else:
            owned.fetch_from = max(start, fetched.after)
            owned.stream.put(Chunk(owned, fetched.data, start, fetched.after))

    def _too_large(self, owned: OwnedPartition, size: int) -> str:
        """Return the error message for a partition whose next message is larger than one fetch.

        `size` is the message's size in bytes.
        """
        has = self._settings.fetch_message_max_bytes
        needs = f" of {size} bytes" if size > has else ""
        return (
            f"{owned} at offset {owned.fetch_from} has a message{needs} that is larger than one fetch: make "
            f"fetch.message.max.bytes larger than {has}"
        )

    def _failed(self, owned: OwnedPartition, code: int) -> bool:
        """Handle the error code in a partition's fetch response. Return True if the partition has to be given back.

        That is so if the partition needs another leader or another offset. For other errors, the partition's stream
        raises the error.
        """
        if code == Errors.OFFSET_OUT_OF_RANGE:
            log.warning(
                "%s at offset %s: %s Continuing at the %s record.",
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

    def _stop_fetching(self, partitions: list[OwnedPartition]) -> None:
        """Stop fetching the given partitions and pass them to `give_back`."""
        with self._changed:
            for owned in partitions:
                if self._partitions.get(owned.where) is owned:
                    del self._partitions[owned.where]
        self._give_back(partitions)
