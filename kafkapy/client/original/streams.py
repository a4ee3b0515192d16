"""What a thread of the user's iterates over, and the bounded queue behind it, which the fetchers fill.

Source: Kafka's KafkaStream, ConsumerIterator, PartitionTopicInfo and FetchedDataChunk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import ConsumerRecord, read_records
from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.errors import ConsumerTimeout
from kafkapy.errors import Errors, KafkaError

Decoder = Callable[[bytes], Any]


class OwnedPartition:
    """A partition while one of our threads owns it. The stream's lock guards all but `fetch_from`.

    position: what `consumed` is while no chunk of it is being handed out.
    fetch_from: what the fetcher asks for next; None: where auto.offset.reset says.
    """

    __slots__ = ("failed", "fetch_from", "partition", "position", "room", "stream", "taken_away", "waiting", "where")

    def __init__(self, partition: Partition, stream: Stream, offset: int | None) -> None:
        self.partition = partition
        self.where: TopicPartition = (partition[0], int(partition[1].rpartition("-")[2]))  # in 0.7 on its broker
        self.stream = stream
        self.position = offset
        self.fetch_from = offset
        self.waiting = 0  # chunks in the queue
        self.taken_away = False
        self.failed = False  # it is not read any further
        self.room: Callable[[], None] = _nobody  # is told when a chunk leaves the queue

    @property
    def consumed(self) -> int | None:
        """The offset behind the last record handed out; None until it is known where to begin."""
        return self.stream.position(self)

    def __str__(self) -> str:
        return f"{self.partition[0]}-{self.partition[1]}"


class Chunk(NamedTuple):
    """What one Fetch brought of a partition: batches, the first of which may begin before `start`, the offset that was
    asked for, and the last of which may be cut off. The next Fetch is for `after`; -1: behind the last record."""

    owned: OwnedPartition
    data: memoryview
    start: int
    after: int = -1

    @property
    def where(self) -> TopicPartition:
        return self.owned.where

    @property
    def is_ours(self) -> bool:
        """Whether we still own the partition; no longer as soon as it is about to be given up."""
        return not self.owned.taken_away


class Failure(NamedTuple):
    """Why a partition is read no further, behind the chunks that came before."""

    owned: OwnedPartition
    error: KafkaError | ClientError


class Stream(Iterator[ConsumerRecord]):
    """Records of the partitions that one thread of the group owns, in order within each. For one thread.

    What is decoded and not yet handed out lies in a deque, and its first record tells where its partition stands, so
    that one `popleft` hands out a record and moves the position, without a lock. Whoever takes a partition away empties
    the deque from the other end, and stands before the last record that it got: those which the thread gets meanwhile
    are in front of it, and count as handed out.

    Args:
        timeout_ms: how long to wait for a record before ConsumerTimeout is raised; -1: for ever.
        key_decoder, value_decoder: what to make of keys and values that are not null; None: nothing, they are bytes.
    """

    def __init__(
        self, timeout_ms: int = -1, key_decoder: Decoder | None = None, value_decoder: Decoder | None = None
    ) -> None:
        self._timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._chunks: deque[Chunk | Failure] = deque()
        self._ahead: deque[ConsumerRecord] = deque()  # of the partition `_current`, which then goes on at `_after`
        self._current: OwnedPartition | None = None
        self._after = 0
        self._decodes = key_decoder is not None or value_decoder is not None
        self._closed = False

    def __next__(self) -> ConsumerRecord:
        """Raises ConsumerTimeout, or KafkaError for a partition that cannot be read; others may be read on then."""
        while True:
            if self._ahead:
                try:
                    record = self._ahead.popleft()
                except IndexError:  # it was taken away in between
                    continue
                return self._decoded(record) if self._decodes else record
            with self._lock:
                self._refill()

    def _decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        if self._key_decoder is not None and record.key is not None:
            record = record._replace(key=self._key_decoder(record.key))
        if self._value_decoder is not None and record.value is not None:
            record = record._replace(value=self._value_decoder(record.value))
        return record

    def next_chunk(self, timeout_s: float | None = None) -> Chunk | None:
        """For who wants bytes and no records, and commits offsets that it knows itself: nothing counts as consumed.

        A stream is read by chunks or by records, not by both. Returns None when nothing comes in time (None: for ever),
        and from the connector's shutdown on. Raises KafkaError as the iteration does.
        """
        with self._lock:
            deadline = _deadline(timeout_s)
            return self._take_chunk(deadline)

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more."""
        return self._closed

    def put(self, chunk: Chunk) -> bool:
        """For fetchers: whether the partition is still read."""
        with self._lock:
            if chunk.owned.taken_away or chunk.owned.failed or self._closed:
                return False
            self._chunks.append(chunk)
            chunk.owned.waiting += 1
            self._news.notify()
            return True

    def fail(self, owned: OwnedPartition, error: KafkaError | ClientError) -> None:
        """The partition is read no further; the thread is told once, after what was there before."""
        with self._lock:
            if not owned.taken_away and not self._closed:
                owned.failed = True
                self._chunks.append(Failure(owned, error))
                self._news.notify()

    def begin(self, owned: OwnedPartition, offset: int) -> None:
        """Where a partition begins, or goes on, that had no position, or one that is out of range."""
        with self._lock:
            owned.fetch_from = offset
            if not owned.waiting and self._current is not owned:
                owned.position = offset

    def mark(self, owned: OwnedPartition, offset: int) -> None:
        """For who takes chunks: what is before the offset counts as consumed."""
        with self._lock:
            owned.position = offset

    def position(self, owned: OwnedPartition) -> int | None:
        with self._lock:
            if owned is not self._current:
                return owned.position
            try:
                # Not one more than the last: in Kafka 0.7 offsets are places, which messages compressed together share.
                return self._ahead[0].offset
            except IndexError:
                return self._after

    def take_away(self, partitions: Iterable[OwnedPartition]) -> None:
        """From now on no record of them is handed out, and where they stand stays as it is."""
        gone = set(partitions)
        with self._lock:
            for owned in gone:
                owned.taken_away = True
            self._drop(gone)
            if self._current in gone:
                self._stand_still()

    def close(self) -> None:
        """The iteration ends."""
        with self._lock:
            self._closed = True
            self._chunks.clear()
            self._stand_still()
            self._news.notify()

    def _drop(self, gone: set[OwnedPartition]) -> None:
        self._chunks = deque(one for one in self._chunks if one.owned not in gone)

    def _stand_still(self) -> None:
        """Hands out no more of the current chunk."""
        if self._current is None:
            return
        position = self._after
        while self._ahead:
            try:
                position = self._ahead.pop().offset
            except IndexError:  # the thread was faster
                break
        self._current.position = position
        self._current = None

    def _refill(self) -> None:
        """Decodes the next chunk that has records, when it is there."""
        deadline = _deadline(self._timeout_s)
        self._stand_still()
        while not self._ahead:
            chunk = self._take_chunk(deadline)
            if chunk is not None:
                self._decode(chunk)
            elif self._closed:
                raise StopIteration
            else:
                raise ConsumerTimeout(f"no record came within {self._timeout_s:g} s (consumer.timeout.ms)")

    def _take_chunk(self, deadline: float | None) -> Chunk | None:
        """Waits for the next one, with the lock."""
        while not self._chunks:
            if self._closed:
                return None
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._news.wait(left)
        chunk = self._chunks.popleft()
        if isinstance(chunk, Failure):
            raise chunk.error
        chunk.owned.waiting -= 1
        chunk.owned.room()
        return chunk

    def _decode(self, chunk: Chunk) -> None:
        owned = chunk.owned
        try:
            records, after = read_records(owned.where, chunk.data, chunk.start)
            after = max(after, chunk.after)
        except ValueError as error:
            owned.failed = True
            self._drop({owned})
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"{owned} at offset {chunk.start}: {error}") from None
        if records:
            self._ahead.extend(records)
            self._current, self._after = owned, after
        else:
            owned.position = after


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _nobody() -> None:
    pass
