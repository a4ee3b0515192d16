"""The clients of `kafkapy bench consume`."""

from __future__ import annotations

import select
import ssl
import time
from dataclasses import dataclass

from kafkapy._ext.entry_walk import entries_total
from kafkapy.client.administration.admin import Admin
from kafkapy.client.raw.connection import TIMEOUT, RawConnection
from kafkapy.client.raw.requests import FETCH_VERSIONS, MAX_WAIT_MS, FetchFailed, FetchFrame
from kafkapy.protocol.apis import FETCH
from kafkapy.tools.bench.board import RECORDS, Slot
from kafkapy.tools.bench.jobs import CLIENT_ID, CLOSED
from kafkapy.tools.bench.leaders import Place, open_raw, refuse
from kafkapy.tools.common.errors import ToolError

EARLIEST, LATEST = -2, -1
_LOOK_S = 0.05
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Partition:
    """A client's position in a partition."""

    def __init__(self, index: int, frame: FetchFrame, start: int, end: int) -> None:
        self.index = index
        self.frame = frame
        self.start = start
        self.end = end
        """The end of the partition when the client began."""
        self.offset = start

    @property
    def is_done(self) -> bool:
        return self.offset >= self.end


class Feed:
    """A connection to a broker with one Fetch request in flight, for one partition after the other."""

    def __init__(self, connection: RawConnection, topic: str, partitions: list[Partition]) -> None:
        self.connection = connection
        self.socket = connection.socket
        self.partitions = partitions
        self._topic = topic
        self._is_tls = isinstance(self.socket, ssl.SSLSocket)
        self._turn = 0
        self._asked: Partition | None = None
        self._buffer = memoryview(bytearray(1 << 21))
        self._filled = 0
        self._sent_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """True while a response is outstanding."""
        return self._asked is not None

    def ask(self, *, everywhere: bool) -> bool:
        """Send a request for the next partition that is not read up to its end; with `everywhere`, for the next
        partition in any case. Return False if there is no such partition."""
        for _ in self.partitions:
            partition = self.partitions[self._turn % len(self.partitions)]
            self._turn += 1
            if everywhere or not partition.is_done:
                if self.connection.session_ends:
                    self.connection.log_in_again()
                self.socket.settimeout(TIMEOUT)
                self._sent_at = time.perf_counter()
                self.socket.sendall(partition.frame.at(partition.offset))
                self.socket.settimeout(0)
                self._asked = partition
                return True
        return False

    def begin_again(self) -> bool:
        """Go back to the start of each partition. Return False if there is nothing to read."""
        for partition in self.partitions:
            partition.offset = partition.start
        return not all(partition.is_done for partition in self.partitions)

    def receive(self) -> tuple[int, int, float] | None:
        """Receive what has arrived. Return (records, bytes, seconds) when the response is complete.

        The bytes are those of whole batches, as they are stored.
        """
        partition = self._asked
        if partition is None:  # without a request, only the end of the connection can arrive
            raise ToolError(CLOSED)
        whole = self._receive_some()
        if not whole:
            return None
        seconds = time.perf_counter() - self._sent_at
        self._filled = 0
        self._asked = None
        where, head = f"{self._topic}-{partition.index}", partition.frame.head
        try:
            length = partition.frame.records_in(self._buffer[: max(head, whole)])
        except FetchFailed as error:
            refuse(self._topic, partition.index, error.code)
            raise ToolError(f"{where}: {error}") from None
        _, count, after = entries_total(self._buffer[head : head + length])
        if after < 0 < length:
            raise ToolError(f"{where}: a response has {length} bytes, but no whole batch")
        partition.offset = max(after, partition.offset)
        return count, length, seconds

    def _receive_some(self) -> int:
        """Receive what has arrived of a response; return its size when it is complete, else 0."""
        while True:
            try:
                got = self.socket.recv_into(self._buffer[self._filled :])
            except _WOULD_BLOCK:
                return 0
            if not got:
                raise ToolError(CLOSED)
            self._filled += got
            if self._filled >= 4:
                whole = 4 + int.from_bytes(self._buffer[:4], "big")
                if self._filled >= whole:
                    return whole
                if whole > len(self._buffer):  # a batch that is longer than the limit of the request
                    longer = memoryview(bytearray(2 * whole))
                    longer[: self._filled] = self._buffer[: self._filled]
                    self._buffer = longer
            if not self._is_tls:  # TLS may have more bytes in memory, of which the kernel does not know
                return 0


@dataclass
class ConsumeJob:
    """Fetches the partitions of `place`, without unpacking the records.

    Args:
        fetch_bytes: The most bytes of a partition in a response, if its first batch is not longer.
        records: How many records to read at most; None: no limit.
        again: Begin again when everything is read. If False, stop there, unless `records` is given.
        from_latest: Begin at the end.
        idle_s: With `records`, end after this long without a record.
    """

    place: Place
    fetch_bytes: int
    records: int | None = None
    again: bool = False
    from_latest: bool = False
    idle_s: float = 10.0

    def prepare(self) -> None:
        with self.place.cluster() as cluster:
            by_leader = self.place.by_leader(cluster)
            topic = self.place.topic
            keys = [(topic, partition) for partition in self.place.partitions]
            admin = Admin(cluster)
            ends = admin.offsets(dict.fromkeys(keys, LATEST))
            starts = ends if self.from_latest else admin.offsets(dict.fromkeys(keys, EARLIEST))
            self._feeds = []
            for node, partitions in by_leader.items():
                connection, version = open_raw(cluster, node, FETCH, FETCH_VERSIONS)
                # A request for a partition without new records also delays the other partitions of the connection.
                wait_ms = max(1, MAX_WAIT_MS // len(partitions))
                its = []
                for each in partitions:
                    frame = FetchFrame(
                        topic, self.fetch_bytes, each, version=version, client=CLIENT_ID, max_wait_ms=wait_ms
                    )
                    its.append(Partition(each, frame, starts[topic, each].offset, ends[topic, each].offset))
                self._feeds.append(Feed(connection, topic, its))

    @property
    def _waits_for_more(self) -> bool:
        """True to wait for new records at the ends of the partitions."""
        return self.from_latest or (self.records is not None and not self.again)

    def run(self, slot: Slot) -> None:
        of_fd = {feed.socket.fileno(): feed for feed in self._feeds}
        answered = read = time.perf_counter()  # when the last response came, and the last one with records
        with select.epoll() as poller:
            for fd in of_fd:
                poller.register(fd, select.EPOLLIN)
            while self._ask():
                for fd, _ in poller.poll(_LOOK_S):
                    if found := of_fd[fd].receive():
                        count, size, seconds = found
                        slot.count(count, size, 1)
                        answered = time.perf_counter()
                        if count:  # the time of a response without records is only the wait for records
                            slot.took(seconds)
                            read = answered
                now = time.perf_counter()
                if slot.shall_end(now) or (self.records is not None and slot.number(RECORDS) >= self.records):
                    break
                if self.records is not None and now - read > self.idle_s:
                    slot.timed_out(now - read)
                    break
                if now - answered > TIMEOUT:
                    raise ToolError(f"the broker has not answered for {TIMEOUT:.0f} s")
        for feed in self._feeds:
            feed.connection.close()

    def _ask(self) -> bool:
        """Send a request on each connection that waits for no response. Return False if none waits for one now."""
        for feed in self._feeds:
            if feed.is_waiting or feed.ask(everywhere=self._waits_for_more):
                continue
            if self.again and feed.begin_again():
                feed.ask(everywhere=False)
        return any(feed.is_waiting for feed in self._feeds)
