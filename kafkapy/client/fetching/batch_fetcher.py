"""Reads the raw batches of one partition between two offsets, for consumers of large amounts of data.

    with BatchFetcher(cluster, "orders", 3, 0, 1_000_000) as batches:
        for fetched in batches:
            ...                       # fetched.data has complete batches; the last batch may be incomplete

The next Fetch is sent before a response is returned to the caller, so that the broker and the caller work at the same
time. Memory holds one response; the socket buffers hold a part of the next. Requests are retried after a broker restart
and a change of the leader.
Source: Kafka's Fetcher.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

from kafkapy._ext.entry_walk import entries_end
from kafkapy.client.administration.admin import EARLIEST, EARLIEST_LOCAL, LATEST, Admin
from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.connection import Connection, FrameMemory
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.fetched import Isolation, isolation_level
from kafkapy.client.fetching.engine import MOST_BYTES, NAMES_UNTIL, FetchedPartition, fetch_request, fetched_partitions
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FETCH, LIST_OFFSETS

log = logging.getLogger(__name__)

FETCH_BYTES = 4 << 20
MAX_WAIT_MS = 500
TIERED_SINCE = 8  # a broker without this ListOffsets version has no tiered storage


class OffsetOutOfRange(KafkaError):
    """The requested offset is not in the partition's log.

    The log has the offsets from `earliest` up to, but not including, `latest`. Both are -1 if they are not known.
    """

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        has = f"it has {earliest} to {latest - 1}" if latest > earliest else f"it is empty, and begins at {earliest}"
        super().__init__(
            Errors.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} does not have offset {offset}: "
            + (has if latest >= 0 else "the offsets that it has are not known")
            + ".",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest

    def __reduce__(self) -> tuple[type[OffsetOutOfRange], tuple[str, int, int, int, int]]:
        return OffsetOutOfRange, (self.topic, self.partition, self.offset, self.earliest, self.latest)


class NothingFetched(ClientError):
    """No batch of a partition could be read within the time limit. `offset` is the offset from which reading failed."""

    def __init__(self, topic: str, partition: int, offset: int, timeout_s: float, reason: str) -> None:
        super().__init__(f"{topic}-{partition} gave nothing from offset {offset} on within {timeout_s:g} s: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timeout_s = timeout_s
        self.reason = reason

    def __reduce__(self) -> tuple[type[NothingFetched], tuple[str, int, int, float, str]]:
        return NothingFetched, (self.topic, self.partition, self.offset, self.timeout_s, self.reason)


class Fetched(NamedTuple):
    """The batches of a partition from one Fetch response. The first batch may begin before the fetched offset.

    Attributes:
        data: The batches, in any format. Valid until the BatchFetcher returns the next Fetched, which reuses the
            memory.
        aborted: (producer id, first offset) of each aborted transaction with records in `data`, for read_committed.
    """

    data: memoryview
    aborted: list[tuple[int, int]]


class BatchFetcher:
    """Iterates over the batches of a partition from offset `start` up to before `end`, once. For use in one thread.

    The iteration also ends if the partition has no more records before `end`, as compaction may have removed them.

    Args:
        fetch_bytes: The largest size of a response. A single batch that is larger is returned alone.
        timeout_s: How long to wait for data before NothingFetched is raised. None: the cluster's time limit.
    Raises:
        OffsetOutOfRange: The partition's log does not have the next offset.
        NothingFetched: No data came within `timeout_s`: no broker could be reached, the partition had no leader, or its
            records up to `end` were not available yet.
        KafkaError: An error that is not retriable, such as TOPIC_AUTHORIZATION_FAILED.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        isolation: Isolation = "read_uncommitted",
        fetch_bytes: int = FETCH_BYTES,
        timeout_s: float | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.position = start
        self.end = end
        self._cluster = cluster
        self._isolation = isolation_level(isolation)
        self._fetch_bytes = fetch_bytes
        self._timeout_s = cluster.timeout_s if timeout_s is None else timeout_s
        self._connection: Connection | None = None
        self._leader = -1
        self._memory = FrameMemory()
        self._progress = 0.0  # time of the last data or of the caller's return

    def __enter__(self) -> BatchFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the borrowed connection back to the cluster. The cluster stays open."""
        if self._connection is not None:
            self._cluster.give_back(self._leader, self._connection)
            self._connection = None

    def __iter__(self) -> Iterator[Fetched]:
        try:
            self._progress = time.monotonic()
            while self.position < self.end:
                fetched = self._next()
                if fetched is None:
                    return
                yield fetched
                self._progress = time.monotonic()  # do not count the caller's own time
        finally:
            self.close()

    def _next(self) -> Fetched | None:
        """Return the next batches, retrying after retriable errors.

        Return None if there are no more records before `end`.
        """
        while True:
            try:
                answer = self._answer()
                if answer is not None and not answer.data and self._nothing_more(answer):
                    return None
            except ConnectionFailed as error:
                self._try_again(error)
                continue
            except KafkaError as error:
                if not is_retriable(error.code) or error.code == Errors.CORRUPT_MESSAGE:
                    raise
                self._try_again(error)
                continue
            if answer is not None and answer.data:
                fetched = self._take(answer)
                if fetched is not None:
                    return fetched

    def _answer(self) -> FetchedPartition | None:
        """Receive the next Fetch response and return the partition's part of it.

        Send a Fetch first if none is in flight. Return None if the response does not have the partition because the
        consumer is throttled. Raise KafkaError for an error code in the response.
        """
        if self._connection is None or not self._connection.in_flight:
            self._ask()
        assert self._connection is not None
        allowed_s = min(self._cluster.timeout_s, self._timeout_s) + MAX_WAIT_MS / 1000
        _, response = self._connection.receive(allowed_s, self._memory)
        self._check(response.error_code)
        for answer in fetched_partitions(response):
            if answer.where == (self.topic, self.partition):
                self._check(answer.error_code)
                return answer
        # A consumer above its quota gets an empty response with a throttle time (KIP-219).
        self._raise_if_overdue("the broker leaves the partition out of its responses")
        time.sleep(max(response.throttle_time_ms / 1000, BACKOFF_S))
        self._progress += response.throttle_time_ms / 1000
        return None

    def _check(self, code: int) -> None:
        """Raise an exception if `code`, the error code of a Fetch response or of the partition in it, is not NONE."""
        if code == Errors.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range()
        if code:
            raise KafkaError(code, f"{self._where}: {message_of(code)}")

    def _take(self, answer: FetchedPartition) -> Fetched | None:
        """Move the position past the batches of a response, and send the next Fetch. Return the batches.

        Return None if no batch is complete; the next Fetch will then allow a larger response.
        """
        _, size, after = entries_end(answer.data)
        if size < 0:
            self.position = self.end  # the caller refuses the data; nothing after it can be read
        elif after > self.position:
            self.position = after
        else:  # brokers before Kafka 0.10.1 also truncate the first batch
            self._fetch_bytes = min(max(size, self._fetch_bytes), MOST_BYTES)
            self._raise_if_overdue("the broker sends no complete batch of it.")
            return None
        if self.position < self.end:
            try:
                self._ask()
            except (ConnectionFailed, KafkaError) as error:
                log.info("%s: sending the next fetch failed; it is retried: %s", self._where, error)
        return Fetched(answer.data, answer.aborted)

    def _nothing_more(self, answer: FetchedPartition) -> bool:
        """Return True if an empty response means that the partition has no records before `end` and will not get any.

        Return False if such records may still come. Raise NothingFetched if they have not come within the time limit.
        """
        stable = answer.last_stable_offset if self._isolation else -1
        bound = answer.high_watermark if stable < 0 else stable
        if bound >= self.end:
            if not self._is_remote():
                return True
            self._raise_if_overdue("the broker is still fetching it from tiered storage.")
            return False
        self._raise_if_overdue(f"it ends at offset {bound}, and is to be read up to {self.end}.")
        return False

    def _is_remote(self) -> bool:
        """Return True if the records at the position are in tiered storage.

        An empty response then only means that the broker has not fetched them from tiered storage in time
        (DelayedRemoteFetch).
        """
        if self._cluster.connection(self._leader).version_of(LIST_OFFSETS) < TIERED_SINCE:
            return False
        where = self.topic, self.partition
        return self.position < Admin(self._cluster).offsets_now({where: EARLIEST_LOCAL})[where].offset

    def _ask(self) -> None:
        """Send a Fetch for the current position to the partition's leader.

        Borrow a connection to the leader if there is none.
        """
        if self._connection is None:
            self._leader = self._find_leader()
            self._connection = self._cluster.borrow(self._leader)
        request = fetch_request(
            [((self.topic, self.partition), self.position, self._fetch_bytes)],
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation=self._isolation,
        )
        self._connection.send(FETCH, request, at_most=NAMES_UNTIL)

    def _find_leader(self) -> int:
        """Return the broker id of the partition's leader from cached metadata, without waiting for a leader.

        Raise KafkaError if the partition does not exist or has no leader. The other partitions of the topic do not
        matter.
        """
        if self.topic not in self._cluster.topics:
            self._cluster.refresh([self.topic])
        topic = self._cluster.topics.get(self.topic)
        partition = topic.partitions.get(self.partition) if topic is not None else None
        if topic is None or partition is None:
            code = topic.error_code if topic is not None and topic.error_code else Errors.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"{self._where}: {message_of(code)}")
        if partition.leader < 0:
            raise KafkaError(Errors.LEADER_NOT_AVAILABLE, f"{self._where}: {message_of(Errors.LEADER_NOT_AVAILABLE)}")
        return partition.leader

    def _try_again(self, error: ClientError | KafkaError) -> None:
        """Close the connection, forget the topic's metadata and pause, so that the request can be retried.

        Raise NothingFetched, with `error` as the reason, if no data has come within the time limit.
        """
        if self._connection is not None:
            self._connection.close()
            self.close()
        self._cluster.topics.pop(self.topic, None)
        self._raise_if_overdue(str(error))
        log.info("%s: retrying: %s", self._where, error)
        time.sleep(BACKOFF_S)

    def _raise_if_overdue(self, reason: str) -> None:
        """Raise NothingFetched with this reason if no data has come within the time limit."""
        if time.monotonic() - self._progress >= self._timeout_s:
            raise NothingFetched(self.topic, self.partition, self.position, self._timeout_s, reason)

    def _out_of_range(self) -> OffsetOutOfRange:
        """Return an OffsetOutOfRange for the position, with the partition's current earliest and latest offsets.

        Both offsets are -1 in it if looking them up fails.
        """
        where = self.topic, self.partition
        admin = Admin(self._cluster)
        try:
            earliest, latest = (
                admin.offsets({where: at}, isolation=self._isolation)[where].offset for at in (EARLIEST, LATEST)
            )
        except (ClientError, KafkaError):
            earliest = latest = -1
        return OffsetOutOfRange(*where, self.position, earliest, latest)

    @property
    def _where(self) -> str:
        """The partition and the position, as text for messages."""
        return f"{self.topic}-{self.partition} at offset {self.position}"
