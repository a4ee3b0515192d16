"""The raw batches of one partition from offset to offset, for readers that take many at once.

    with BatchFetcher(cluster, "orders", 3, 0, 1_000_000) as batches:
        for fetched in batches:
            ...                       # the whole batches in fetched.data; the last one may be cut off

The next Fetch is sent before an answer is handed on, so that the broker works while the caller does. Memory: one
answer, and what the sockets hold of the next. A broker that goes away and comes back, or another leader, is waited
for. Source: Kafka's Fetcher.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkapy._ext.entry_walk import entries_end
from kafkapy.client.admin import EARLIEST, EARLIEST_LOCAL, LATEST, Admin
from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.connection import Connection, FrameMemory
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.fetched import NAMES_UNTIL, Isolation, isolation_level
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FETCH, LIST_OFFSETS

log = logging.getLogger(__name__)

FETCH_BYTES = 4 << 20
MOST_BYTES = 0x7FFFFFFF
MAX_WAIT_MS = 500
TIERED_SINCE = 8  # of ListOffsets: a broker without it has no tiered storage that could keep us waiting


class OffsetOutOfRange(KafkaError):
    """The partition does not have the offset: it has `earliest` up to, but not including, `latest` (-1: not known)."""

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        has = f"it has {earliest} to {latest - 1}" if latest > earliest else f"it is empty, and begins at {earliest}"
        super().__init__(
            Errors.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} does not have offset {offset}: "
            + (has if latest >= 0 else "what it has cannot be told")
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
    """A partition could not be read on within the time allowed; `offset` is where it stopped."""

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
    """What one Fetch brought: batches of any format, which may begin before the offset that was asked for. The memory
    is used again for the next one.

    aborted: (producer id, first offset) of the aborted transactions in it, for read_committed.
    """

    data: memoryview
    aborted: list[tuple[int, int]]


class BatchFetcher:
    """Iterable once, for one thread. Ends when `end` (not included) is reached, or when the partition has no records
    any more up to there (compaction leaves gaps).

    Args:
        fetch_bytes: what one answer may have; a larger batch comes all the same, alone.
        timeout_s: how long nothing may come before NothingFetched is raised; None: that of the cluster.
    Raises:
        OffsetOutOfRange: the partition does not have the offset that is to be read next.
        NothingFetched: no broker, no leader, or no records up to `end` for too long.
        KafkaError: what does not heal by waiting, such as TOPIC_AUTHORIZATION_FAILED.
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
        self._progress = 0.0  # when something came last

    def __enter__(self) -> BatchFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connection back; the cluster stays open."""
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
                self._progress = time.monotonic()  # what the caller did took its own time
        finally:
            self.close()

    def _next(self) -> Fetched | None:
        """Waits for the next batches; None: there are none up to `end`."""
        while True:
            try:
                answer = self._answer()
                if answer is not None and not answer.records and self._nothing_more(answer):
                    return None
            except ConnectionFailed as error:
                self._try_again(error)
                continue
            except KafkaError as error:
                if not is_retriable(error.code) or error.code == Errors.CORRUPT_MESSAGE:
                    raise
                self._try_again(error)
                continue
            if answer is not None and answer.records:
                fetched = self._take(answer)
                if fetched is not None:
                    return fetched

    def _answer(self) -> Any:
        """The partition's part of a Fetch response; None when the broker put us off."""
        if self._connection is None or not self._connection.in_flight:
            self._ask()
        assert self._connection is not None
        allowed_s = min(self._cluster.timeout_s, self._timeout_s) + MAX_WAIT_MS / 1000
        _, response = self._connection.receive(allowed_s, self._memory)
        if response.error_code:
            raise KafkaError(response.error_code, f"{self._where}: {message_of(response.error_code)}")
        for topic in response.responses:
            for answer in topic.partitions:
                if topic.topic == self.topic and answer.partition_index == self.partition:
                    if answer.error_code == Errors.OFFSET_OUT_OF_RANGE:
                        raise self._out_of_range()
                    if answer.error_code:
                        raise KafkaError(answer.error_code, f"{self._where}: {message_of(answer.error_code)}")
                    return answer
        # A consumer that is over its quota gets an empty answer, and is to wait (KIP-219).
        self._patience("the broker leaves the partition out of its answers")
        time.sleep(max(response.throttle_time_ms / 1000, BACKOFF_S))
        self._progress += response.throttle_time_ms / 1000
        return None

    def _take(self, answer: Any) -> Fetched | None:
        """Moves on behind the batches of an answer and asks for the next ones; None: not even one is whole."""
        data = memoryview(answer.records)
        _, size, after = entries_end(data)
        if size < 0:
            self.position = self.end  # what is no batch is for the reader to refuse: there is no way past it
        elif after > self.position:
            self.position = after
        else:  # brokers before Kafka 0.10.1 cut also the first batch
            self._fetch_bytes = min(max(size, self._fetch_bytes), MOST_BYTES)
            self._patience("the broker sends no whole batch of it.")
            return None
        if self.position < self.end:
            try:
                self._ask()
            except (ConnectionFailed, KafkaError) as error:
                log.info("%s: the next records are asked for later: %s", self._where, error)
        return Fetched(data, [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()])

    def _nothing_more(self, answer: Any) -> bool:
        """Whether an empty answer means that no record up to `end` is there, and none can come."""
        stable = answer.last_stable_offset if self._isolation else -1
        bound = answer.high_watermark if stable < 0 else stable
        if bound >= self.end:
            if not self._is_elsewhere():
                return True
            self._patience("the broker is still fetching it from tiered storage.")
            return False
        self._patience(f"it ends at offset {bound}, and is to be read up to {self.end}.")
        return False

    def _is_elsewhere(self) -> bool:
        """Whether the records are not on the leader's disk, so that an empty answer only says that they have not come
        from tiered storage in time (DelayedRemoteFetch)."""
        if self._cluster.connection(self._leader).version_of(LIST_OFFSETS) < TIERED_SINCE:
            return False
        where = self.topic, self.partition
        return self.position < Admin(self._cluster).offsets_now({where: EARLIEST_LOCAL})[where].offset

    def _ask(self) -> None:
        if self._connection is None:
            self._leader = self._find_leader()
            self._connection = self._cluster.borrow(self._leader)
        asked = FETCH.Request.Topics.Partitions(
            partition=self.partition, fetch_offset=self.position, partition_max_bytes=self._fetch_bytes
        )
        request = FETCH.Request(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=self._isolation,
            topics=[FETCH.Request.Topics(topic=self.topic, partitions=[asked])],
        )
        self._connection.send(FETCH, request, at_most=NAMES_UNTIL)

    def _find_leader(self) -> int:
        """As last heard; other partitions of the topic may be without one."""
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
        """After a failure that may heal: begins anew, with another connection and another look at who leads."""
        if self._connection is not None:
            self._connection.close()
            self.close()
        self._cluster.topics.pop(self.topic, None)
        self._patience(str(error))
        log.info("%s: tries again: %s", self._where, error)
        time.sleep(BACKOFF_S)

    def _patience(self, reason: str) -> None:
        if time.monotonic() - self._progress >= self._timeout_s:
            raise NothingFetched(self.topic, self.partition, self.position, self._timeout_s, reason)

    def _out_of_range(self) -> OffsetOutOfRange:
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
        return f"{self.topic}-{self.partition} at offset {self.position}"
