"""Regroups records of source partitions into batches for target partitions, as a mirror does, without Python objects
for records.

    rebatcher = Rebatcher(codec=ZSTD)
    for chunk in chunks:
        for batch in rebatcher.feed(chunk.where, chunk.data, chunk.start, producer.partition_count(chunk.where[0])):
            producer.send_batch(batch)
    reached = dict(rebatcher.positions)
    for batch in rebatcher.finish():
        producer.send_batch(batch)
    producer.flush()                      # now the target has everything before the offsets in `reached`

Records are converted to columns (kafkapy.record.columns) in pieces that fit into the processor's cache, and from
columns to the new batches. If records keep their partition number, a batch that already has the right codec is passed
on unchanged: compressing it again would cost fifty times as much as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kafkapy._ext.batch import BatchHeader, CorruptBatch, check, next_batch
from kafkapy._ext.columns import Bytes, Columns, Headers, Memory
from kafkapy._ext.entry_walk import entries_end
from kafkapy._ext.row_batches import BadRow, Rows, TopicBatches
from kafkapy.record.columns import column_builder
from kafkapy.record.compression import NONE
from kafkapy.record.encoded import EncodedBatch
from kafkapy.record.sticky import StickyChoice, all_partitions

TopicPartition = tuple[str, int]

_COLUMNS = ("timestamp", "key", "value", "headers")
_PIECE = 128 * 1024  # size of a piece of columns in bytes
# A batch smaller than 1/16 of `batch_bytes` is encoded again, together with others.
_SMALL = 16


class Rebatcher:
    """Collects records into an open batch for each target partition. For use in one thread.

    Records of a source partition stay in order within each target partition; keys, values, headers and timestamps are
    preserved.

    Args:
        codec: the codec of the new batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes: a batch is closed when its uncompressed records reach this size. A single record may be larger.
        by_number: records keep their partition number. Otherwise the hash of the key (murmur2) chooses the partition,
            and records without a key go to a partition that changes with each batch (KIP-480).
        available: a function of a target topic and its number of partitions. It returns the partitions that records
            without a key may go to, such as `RecordProducer.available_partitions`: the partitions with a leader.
        open_bytes: the limit for the size of all open batches together; beyond the limit, batches are closed early.
    Attributes:
        positions: for each source partition, the next offset to feed: all records before it are in batches that were
            yielded, or that the next `finish` yields.
    """

    def __init__(
        self,
        *,
        codec: int = NONE,
        batch_bytes: int = 256 * 1024,
        by_number: bool = False,
        available: Callable[[str, int], Sequence[int]] = all_partitions,
        open_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._open_bytes = open_bytes
        self._by_number = by_number
        self._columns = (*_COLUMNS, "partition") if by_number else _COLUMNS
        self._topics: dict[str, TopicBatches] = {}
        self._sticky = StickyChoice(available)

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
        """Add the records of a source partition from offset `start` on, and yield the batches that become full. Must be
        iterated to the end.

        Args:
            where: source topic and partition.
            data: batches of any format, as in a Fetch response: the last one may be cut off. Control batches are left
                out.
            partitions: the number of partitions of the target topic.
            topic: the target topic, if its name differs from the source topic's.
            aborted: (producer id, first offset) of the aborted transactions in `data`, whose records are left out.
        Raises:
            DamagedBatch: for bytes that are not a batch. Earlier batches may have been added, but `positions` is not
                changed.
            ValueError: with by_number, if the target has no such partition.
        """
        target = where[0] if topic is None else topic
        position = 0
        if self._by_number and where[1] < partitions:
            for batch in self._unchanged_batches(target, where[1], data, start):
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
        if sum(batches.open_bytes for batches in self._topics.values()) > self._open_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[EncodedBatch]:
        """Yield all batches that are still open, and close them. `feed` may be called again after this."""
        for topic in self._topics:
            yield from self._close(topic)

    def _encode(self, topic: str, columns: Columns, partitions: int, where: TopicPartition) -> Iterator[EncodedBatch]:
        batches = self._topics.get(topic)
        if batches is None or batches.partitions != partitions:
            yield from self._close(topic)
            batches = self._topics[topic] = TopicBatches(partitions, self._batch_bytes)
        rows = _rows(columns)
        at = 0
        while True:
            batches.sticky = self._sticky.partition(topic, partitions)
            try:
                at = batches.append(rows, at, rows.count, -1)
            except BadRow as bad:
                raise ValueError(f"a record of {where[0]}-{where[1]} {bad.reason}") from None
            if batches.full < 0:
                break
            full = batches.full
            yield self._take(topic, batches, full)
            self._sticky.batch_is_full(topic, full, partitions)

    def _unchanged_batches(self, topic: str, partition: int, data: memoryview, start: int) -> Iterator[EncodedBatch]:
        """Yield the batches at the start of `data` that can be passed on without encoding, up to the first batch that
        must be encoded again."""
        position = 0
        while (batch := self._unchanged_batch(topic, partition, data, position, start)) is not None:
            yield batch
            position += len(batch.data)

    def _unchanged_batch(
        self, topic: str, partition: int, data: memoryview, position: int, start: int
    ) -> EncodedBatch | None:
        try:
            header = next_batch(data, position)
            if header is None or not self._can_pass_unchanged(header, start):
                return None
            check(data, position)
        except CorruptBatch:  # another format, or damaged: the column builder will raise the error
            return None
        batch = bytearray(data[position : header.next_position])
        batch[:8] = bytes(8)  # the base offset
        batch[12:16] = b"\xff" * 4  # the leader epoch: none
        return EncodedBatch(topic, partition, batch, header.count, header.size)

    def _can_pass_unchanged(self, header: BatchHeader, start: int) -> bool:
        """Return True if the batch can be passed on without encoding.

        All its records must be wanted, its offsets must have no gaps, and it must have the target's codec and not be
        small. It must also be neither transactional nor have append timestamps, so the attributes may contain only the
        codec.
        """
        return (
            header.attributes == self._codec
            and header.base_offset >= start
            and header.count == header.last_offset_delta + 1 > 0
            and header.size >= self._batch_bytes // _SMALL
        )

    def _close(self, topic: str, only: int | None = None) -> Iterator[EncodedBatch]:
        """Remove and yield the open batches of a topic, or only the open batch of the partition `only`."""
        batches = self._topics.get(topic)
        if batches is not None:
            for partition in batches.open_partitions():
                if only is None or partition == only:
                    yield self._take(topic, batches, partition)

    def _take(self, topic: str, batches: TopicBatches, partition: int) -> EncodedBatch:
        data, count, largest = batches.take(partition)
        return EncodedBatch(topic, partition, data, count, largest, codec=self._codec)


def _rows(columns: Columns) -> Rows:
    """Return the columns of records as the input of the batch encoder, without copying."""
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
