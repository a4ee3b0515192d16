"""The streams of records that the user's threads iterate over. The fetchers fill their bounded queues.

Source: Kafka's KafkaStream, ConsumerIterator, PartitionTopicInfo and FetchedDataChunk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import ConsumerRecord, read_records
from kafkapy.client.original.assignment import Partition
from kafkapy.client.original.errors import ConsumerTimeout
from kafkapy.errors import Errors, KafkaError

Decoder = Callable[[bytes], Any]

# `may_read` is called once for this many records, as it takes longer than returning a record.
SLICE = 64
_POLL_S = 0.05  # how often a waiting thread calls `may_read`


def _always() -> bool:
    return True


class OwnedPartition:
    """A partition that this group member owns. The stream's lock guards every attribute except `fetch_from`.

    position: The value of `consumed`, unless the stream is returning the records of a chunk of this partition.
    fetch_from: The offset of the next fetch. None if the fetch starts where auto.offset.reset says.
    """

    __slots__ = (
        "failed",
        "fetch_from",
        "lost",
        "partition",
        "position",
        "revoked",
        "room",
        "stream",
        "waiting",
        "where",
    )

    def __init__(self, partition: Partition, stream: Stream, offset: int | None) -> None:
        self.partition = partition
        self.where: TopicPartition = (partition[0], int(partition[1].rpartition("-")[2]))  # 0.7: BROKER-NUMBER
        self.stream = stream
        self.position = offset
        self.fetch_from = offset
        self.waiting = 0  # chunks in the queue
        self.revoked = False
        self.lost = False  # True if it is revoked after a session expiry: other members may already own it
        self.failed = False  # True after an error: the partition is no longer read
        self.room: Callable[[], None] = _no_callback  # called when a chunk leaves the queue

    @property
    def consumed(self) -> int | None:
        """The offset after the last record that the stream returned; None if no offset is known yet."""
        return self.stream.position(self)

    def __str__(self) -> str:
        return f"{self.partition[0]}-{self.partition[1]}"


class Chunk(NamedTuple):
    """The batches that one fetch returned for one partition.

    The first batch may begin before `start`, the fetched offset, and the last batch may be incomplete. The next fetch
    starts at the offset `after`, or at the offset after the last record if `after` is -1.
    """

    owned: OwnedPartition
    data: memoryview
    start: int
    after: int = -1

    @property
    def where(self) -> TopicPartition:
        return self.owned.where


class Failure(NamedTuple):
    """The error that ends the reading of a partition, queued after the partition's last chunk."""

    owned: OwnedPartition
    error: KafkaError | ClientError


class Stream(Iterator[ConsumerRecord]):
    """The records of the partitions that one consumer thread owns, in offset order within each partition.

    Only one thread may iterate.

    Decoded records that are not returned yet are in a deque, whose first record is the partition's position. So one
    `popleft` returns a record and moves the position, without a lock. A thread that revokes a partition empties the
    deque from the other end. The position is then the last record that the revoking thread removed, because all records
    before that record were returned. The deque gets SLICE records of a chunk at a time.

    Args:
        timeout_ms: How long to wait for a record before ConsumerTimeout is raised. -1: no limit.
        key_decoder, value_decoder: Decode keys and values that are not null. None: keys and values stay bytes.
        may_read: Returns False while this member may have lost its partitions. The stream returns no record then.
    """

    def __init__(
        self,
        timeout_ms: int = -1,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
        may_read: Callable[[], bool] = _always,
    ) -> None:
        self._timeout_s = None if timeout_ms < 0 else timeout_ms / 1000
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._chunks: deque[Chunk | Failure] = deque()
        self._may_read = may_read
        self._ahead: deque[ConsumerRecord] = deque()  # records of the partition `_current`
        self._decoded_chunk: Sequence[ConsumerRecord] = ()  # the records from index `_next` on follow those of `_ahead`
        self._next = 0
        self._current: OwnedPartition | None = None
        self._after = 0  # position of `_current` after all records of the chunk
        self._decodes = key_decoder is not None or value_decoder is not None
        self._closed = False

    def __next__(self) -> ConsumerRecord:
        """Return the next record, waiting for it. Raise StopIteration after the connector's shutdown.

        Raises ConsumerTimeout if no record comes in time, or KafkaError for a partition that cannot be read; other
        partitions can still be read.
        """
        while True:
            if self._ahead:
                try:
                    record = self._ahead.popleft()
                except IndexError:  # the partition was revoked in between
                    continue
                return self._decoded(record) if self._decodes else record
            with self._lock:
                self._refill()

    def _decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return the record with its key and value decoded by the user's decoders."""
        if self._key_decoder is not None and record.key is not None:
            record = record._replace(key=self._key_decoder(record.key))
        if self._value_decoder is not None and record.value is not None:
            record = record._replace(value=self._value_decoder(record.value))
        return record

    def next_chunk(self, timeout_s: float | None = None) -> Chunk | None:
        """Return the next fetched chunk of some partition, undecoded, without moving the partition's position.

        This method is for callers that commit given offsets. A stream is read either with this method or by iteration,
        not both. Returns None if no chunk comes within `timeout_s` (None: no limit), and after the connector's
        shutdown. Raises KafkaError for a partition that cannot be read.
        """
        with self._lock:
            deadline = _deadline(timeout_s)
            return self._take_chunk(deadline)

    @property
    def closed(self) -> bool:
        """True after `close`, which the connector calls at its shutdown."""
        return self._closed

    def put(self, chunk: Chunk) -> bool:
        """Add a fetched chunk to the queue. Return False if the chunk's partition is no longer read."""
        with self._lock:
            if chunk.owned.revoked or chunk.owned.failed or self._closed:
                return False
            self._chunks.append(chunk)
            chunk.owned.waiting += 1
            self._changed.notify()
            return True

    def fail(self, owned: OwnedPartition, error: KafkaError | ClientError) -> None:
        """Stop reading a partition because of an error.

        The reading thread gets the error once, after the partition's queued chunks.
        """
        with self._lock:
            if not owned.revoked and not self._closed:
                owned.failed = True
                self._chunks.append(Failure(owned, error))
                self._changed.notify()

    def begin(self, owned: OwnedPartition, offset: int) -> None:
        """Set the start offset of a partition that had no position, or whose position was out of range."""
        with self._lock:
            owned.fetch_from = offset
            if not owned.waiting and self._current is not owned:
                owned.position = offset

    def mark(self, owned: OwnedPartition, offset: int) -> None:
        """Set the position of a partition whose chunks are read with `next_chunk`."""
        with self._lock:
            owned.position = offset

    def position(self, owned: OwnedPartition) -> int | None:
        """Return the offset of the partition's next record to return; None if no offset is known yet."""
        with self._lock:
            if owned is not self._current:
                return owned.position
            try:
                # Not last offset + 1: in Kafka 0.7, messages that were compressed together share one offset.
                return self._ahead[0].offset
            except IndexError:
                return self._position_after_ahead()

    def revoke(self, partitions: Iterable[OwnedPartition], *, lost: bool = False) -> None:
        """Stop returning records of these partitions, and fix each position after the last returned record.

        `lost` is True after a session expiry, when other members may already own the partitions.
        """
        gone = set(partitions)
        with self._lock:
            for owned in gone:
                owned.revoked = True
                owned.lost = lost
            self._drop(gone)
            if self._current in gone:
                self._drop_current()

    def close(self) -> None:
        """End the iteration and drop all records that are not returned yet."""
        with self._lock:
            self._closed = True
            self._chunks.clear()
            self._drop_current()
            self._changed.notify()

    def _drop(self, gone: set[OwnedPartition]) -> None:
        """Remove the queued chunks and errors of the given partitions."""
        self._chunks = deque(one for one in self._chunks if one.owned not in gone)

    def _drop_current(self) -> None:
        """Drop the unreturned records of the current chunk and fix the position of the chunk's partition."""
        if self._current is None:
            return
        position = self._position_after_ahead()
        self._decoded_chunk, self._next = (), 0
        while self._ahead:
            try:
                position = self._ahead.pop().offset
            except IndexError:  # the reading thread has taken the last record
                break
        self._current.position = position
        self._current = None

    def _position_after_ahead(self) -> int:
        """Return the position that the current partition has after the records in `_ahead` are returned."""
        return self._decoded_chunk[self._next].offset if self._next < len(self._decoded_chunk) else self._after

    def _refill(self) -> None:
        """Fill `_ahead` with records of the current chunk, or of the next chunk that has records, waiting if needed.

        Raises ConsumerTimeout if no record comes in time, and StopIteration if the stream is closed.
        """
        deadline = _deadline(self._timeout_s)
        while not self._ahead:
            if self._next < len(self._decoded_chunk):
                if self._may_read():
                    self._ahead.extend(self._decoded_chunk[self._next : self._next + SLICE])
                    self._next += SLICE
                    return
                if self._wait(deadline):
                    continue
            else:
                self._drop_current()
                chunk = self._take_chunk(deadline)
                if chunk is not None:
                    self._decode(chunk)
                    continue
                if self._closed:
                    raise StopIteration
            raise ConsumerTimeout(f"no record came within {self._timeout_s:g} s (consumer.timeout.ms)")

    def _take_chunk(self, deadline: float | None) -> Chunk | None:
        """Wait for the next chunk and return it, or None when the time is up or the stream is closed.

        The caller holds the lock. Raises the error of a partition that cannot be read.
        """
        while not self._chunks or not self._may_read():
            if self._closed or not self._wait(deadline):
                return None
        chunk = self._chunks.popleft()
        if isinstance(chunk, Failure):
            raise chunk.error
        chunk.owned.waiting -= 1
        chunk.owned.room()
        return chunk

    def _wait(self, deadline: float | None) -> bool:
        """Wait for a new chunk or for `close`. Return False if the deadline has passed.

        If records are there that may not be returned (`may_read`), wait only shortly.
        """
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        if self._chunks or self._decoded_chunk:
            left = _POLL_S if left is None else min(left, _POLL_S)
        self._changed.wait(left)
        return True

    def _decode(self, chunk: Chunk) -> None:
        """Decode a chunk's records and make the chunk the current one. Raise KafkaError if the chunk is corrupt."""
        owned = chunk.owned
        try:
            records, after = read_records(owned.where, chunk.data, chunk.start)
            after = max(after, chunk.after)
        except ValueError as error:
            owned.failed = True
            self._drop({owned})
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"{owned} at offset {chunk.start}: {error}") from None
        if records:
            self._decoded_chunk, self._next = records, 0
            self._current, self._after = owned, after
        else:
            owned.position = after


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _no_callback() -> None:
    pass
