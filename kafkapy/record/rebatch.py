"""Batches of some partitions become batches for others: what a mirror does, without a Python object for any record.

    rebatcher = Rebatcher(codec=ZSTD)
    for chunk in chunks:
        for batch in rebatcher.feed(chunk.where, chunk.data, chunk.start, producer.partition_count(chunk.where[0])):
            producer.send_batch(batch)
    reached = dict(rebatcher.positions)
    for batch in rebatcher.finish():
        producer.send_batch(batch)
    producer.flush()                      # what is before the offsets in `reached` is in the target now

Records lie as columns in between (kafkapy.record.columns), in pieces that stay in the processor's cache. Where records
keep the number of their partition, a batch that has the right codec goes on as it is: compressing it anew would cost
fifty times as much as all the rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from kafkapy._ext.batch import BatchHeader, CorruptBatch, check, next_batch
from kafkapy._ext.columns import Bytes, Columns, Headers, Memory
from kafkapy._ext.entry_walk import entries_end
from kafkapy._ext.row_batches import BadRow, Rows, TopicBatches
from kafkapy.record.columns import column_builder
from kafkapy.record.compression import NONE
from kafkapy.record.encoded import EncodedBatch

TopicPartition = tuple[str, int]

_COLUMNS = ("timestamp", "key", "value", "headers")
_PIECE = 128 * 1024  # bytes of a piece of columns
# A batch that is a smaller part of `batch_bytes` is encoded anew, together with others.
_SMALL = 16


class Rebatcher:
    """Keeps one open batch for each target partition. Records of a source partition stay in their order in each target
    partition; keys, values, headers and timestamps stay as a consumer gets them. For one thread.

    Args:
        codec: of the batches that are made: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes: a batch is closed when its records, not compressed, reach this. One record may be larger.
        by_number: a record goes to the partition of the same number, else to the one that its key's hash chooses
            (murmur2), without a key to one that changes with each batch (KIP-480).
        open_bytes: what all open batches may take together; beyond, they are closed as they are.
    Attributes:
        positions: for each source partition that was fed, the offset behind what was taken of it: all records before it
            are in batches that were given, or are given by the next `finish`.
    """

    def __init__(
        self,
        *,
        codec: int = NONE,
        batch_bytes: int = 256 * 1024,
        by_number: bool = False,
        open_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._open_bytes = open_bytes
        self._by_number = by_number
        self._columns = (*_COLUMNS, "partition") if by_number else _COLUMNS
        self._topics: dict[str, TopicBatches] = {}

    def feed(
        self,
        where: TopicPartition,
        data: memoryview,
        start: int,
        partitions: int,
        *,
        topic: str | None = None,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> Iterator[EncodedBatch]:
        """Takes the records from offset `start` on; gives the batches that became full. To be iterated to its end.

        Args:
            where: topic and partition that the bytes are from.
            data: batches of any format, as a Fetch brings them: the last one may be cut off. Control batches are left
                out.
            partitions: how many the target topic has.
            topic: the target's, if it has another name.
            aborted: (producer id, first offset) of the aborted transactions in `data`, whose records are left out.
        Raises:
            DamagedBatch: bytes that are no batch; what was before it may have been taken, but `positions` is as before.
            ValueError: by number, a partition that the target does not have.
        """
        target = where[0] if topic is None else topic
        position = 0
        if self._by_number and where[1] < partitions:
            for batch in self._as_they_are(target, where[1], data, start):
                position += len(batch.data)
                yield from self._close(target, where[1])
                yield batch
        builder = column_builder(self._columns, max_bytes=_PIECE, min_offset=start, aborted=aborted, partition=where[1])
        for columns in builder.feed(data, position):
            yield from self._encode(target, columns, partitions, where)
        rest = builder.finish()
        if rest is not None:
            yield from self._encode(target, rest, partitions, where)
        self.positions[where] = max(start, entries_end(data)[2])
        if sum(one.open_bytes for one in self._topics.values()) > self._open_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[EncodedBatch]:
        """The batches that are still open. It can be fed again."""
        for topic in self._topics:
            yield from self._close(topic)

    def _encode(self, topic: str, columns: Columns, partitions: int, where: TopicPartition) -> Iterator[EncodedBatch]:
        batches = self._topics.get(topic)
        if batches is None or batches.partitions != partitions:
            yield from self._close(topic)
            batches = self._topics[topic] = TopicBatches(partitions, self._batch_bytes)
            batches.sticky = random.randrange(partitions)
        rows = _rows(columns)
        at = 0
        while True:
            try:
                at = batches.append(rows, at, rows.count, -1)
            except BadRow as bad:
                raise ValueError(f"a record of {where[0]}-{where[1]} {bad.reason}") from None
            if batches.full < 0:
                break
            full = batches.full
            yield self._take(topic, batches, full)
            if full == batches.sticky and partitions > 1:
                batches.sticky = (full + random.randrange(1, partitions)) % partitions

    def _as_they_are(self, topic: str, partition: int, data: memoryview, start: int) -> Iterator[EncodedBatch]:
        """The batches from the beginning on that need not be encoded anew; the first that must be ends it."""
        position = 0
        while (batch := self._as_it_is(topic, partition, data, position, start)) is not None:
            yield batch
            position += len(batch.data)

    def _as_it_is(self, topic: str, partition: int, data: memoryview, position: int, start: int) -> EncodedBatch | None:
        try:
            header = next_batch(data, position)
            if header is None or not self._fits(header, start):
                return None
            check(data, position)
        except CorruptBatch:  # a message of another format, or nothing: what reads records says what it is
            return None
        batch = bytearray(data[position : header.next_position])
        batch[:8] = bytes(8)  # the base offset
        batch[12:16] = b"\xff" * 4  # the leader epoch: none
        return EncodedBatch(topic, partition, batch, header.count, header.size)

    def _fits(self, header: BatchHeader, start: int) -> bool:
        """Whether its records are all wanted, their offsets without gaps and their timestamps their own; and neither
        is it a transaction's."""
        return (
            header.attributes == self._codec
            and header.base_offset >= start
            and header.count == header.last_offset_delta + 1 > 0
            and header.size >= self._batch_bytes // _SMALL
        )

    def _close(self, topic: str, only: int | None = None) -> Iterator[EncodedBatch]:
        """The open batches of a topic; `only` that of one partition."""
        batches = self._topics.get(topic)
        if batches is not None:
            for partition in batches.open_partitions():
                if only is None or partition == only:
                    yield self._take(topic, batches, partition)

    def _take(self, topic: str, batches: TopicBatches, partition: int) -> EncodedBatch:
        data, count, largest = batches.take(partition)
        return EncodedBatch(topic, partition, data, count, largest, codec=self._codec)


def _rows(columns: Columns) -> Rows:
    """The same memory, as what is to be encoded."""
    found = columns.columns
    headers, timestamp, partition = found["headers"], found["timestamp"], found.get("partition")
    assert isinstance(headers, Headers)
    assert isinstance(timestamp, Memory)
    pairs = memoryview(headers.offsets).cast("i")[columns.rows]
    return Rows(
        columns.rows,
        _bytes(found["key"], columns.rows),
        _bytes(found["value"], columns.rows),
        (None, headers.offsets, None, 0, columns.rows, 4) if pairs else None,
        _bytes(headers.names, pairs) if pairs else None,
        _bytes(headers.values, pairs) if pairs else None,
        (None, partition, 0) if isinstance(partition, Memory) else None,
        (None, timestamp, 0),
    )


def _bytes(column: object, entries: int) -> tuple[Memory | None, Memory, Memory, int, int, int]:
    assert isinstance(column, Bytes)
    return column.validity, column.offsets, column.data, 0, entries, 4
