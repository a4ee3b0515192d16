"""Rows of Arrow record batches become batches of records, one partition each, ready to be sent.

    encoder = RowEncoder(producer.partition_count, topic="orders", codec=4)
    for rows in table.to_batches():
        for batch in encoder.feed(rows):
            producer.send_batch(batch)
    for batch in encoder.finish():
        producer.send_batch(batch)

`kafkapy.arrow.row_columns` says which columns there can be, and of what types.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.compute as pc

from kafkapy._ext.row_batches import Rows, TopicBatches
from kafkapy.arrow.row_columns import check_schema, rows_of
from kafkapy.client.partitioner import StickyChoice
from kafkapy.record.encoded import EncodedBatch

__all__ = ["EncodedBatch", "RowEncoder"]


class RowEncoder:
    """Keeps one open batch a partition.

    Args:
        partition_count: how many partitions a topic has, as `Producer.partition_count`; asked once for every record
            batch and topic.
        topic: where all rows go. None: where their column `topic` says.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes: a batch is closed when its records, not compressed, reach this. One record may be larger.
        open_bytes: what all open batches may take together; beyond, they are closed as they are.
    """

    def __init__(
        self,
        partition_count: Callable[[str], int],
        *,
        topic: str | None = None,
        codec: int = 0,
        batch_bytes: int = 256 * 1024,
        open_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._partition_count = partition_count
        self._topic = topic
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._open_bytes = open_bytes
        self._topics: dict[str, TopicBatches] = {}
        self._sticky = StickyChoice()

    def feed(self, batch: Any) -> Iterator[EncodedBatch]:
        """Takes the rows of a pyarrow.RecordBatch; the batches that became full, in order.

        Raises:
            ValueError: a column that is not known or of a wrong type, or a row that cannot be a record; the sentence
                names the column or the row. Rows before it may have been encoded.
            KafkaError: what `partition_count` raises, such as for a topic that is not there.
        """
        check_schema(batch.schema, has_topic=self._topic is not None)
        if batch.num_rows == 0:
            return
        if self._topic is not None:
            yield from self._encode(self._topic, rows_of(batch), 0, batch.num_rows)
            return
        batch, runs = _by_topic(batch)
        rows = rows_of(batch)
        for topic, begin, end in runs:
            yield from self._encode(topic, rows, begin, end)

    def finish(self) -> Iterator[EncodedBatch]:
        """The batches that are still open. The encoder can be fed again."""
        for topic in self._topics:
            yield from self._close(topic)

    def _encode(self, topic: str, rows: Rows, begin: int, end: int) -> Iterator[EncodedBatch]:
        count = self._partition_count(topic)
        batches = self._topics.get(topic)
        if batches is None or batches.partitions != count:
            yield from self._close(topic)
            batches = self._topics[topic] = TopicBatches(count, self._batch_bytes)
        now = int(time.time() * 1000)
        while True:
            batches.sticky = self._sticky.partition(topic, count)
            try:
                begin = batches.append(rows, begin, end, now)
            except ValueError as reason:
                raise ValueError(f"topic {topic!r}: {reason}") from None
            if batches.full < 0:
                break
            full = batches.full
            yield self._take(topic, batches, full)
            self._sticky.batch_is_full(topic, full, count)
        if sum(one.open_bytes for one in self._topics.values()) > self._open_bytes:
            yield from self.finish()

    def _close(self, topic: str) -> Iterator[EncodedBatch]:
        batches = self._topics.get(topic)
        if batches is not None:
            for partition in batches.open_partitions():
                yield self._take(topic, batches, partition)

    def _take(self, topic: str, batches: TopicBatches, partition: int) -> EncodedBatch:
        data, count, largest = batches.take(partition)
        return EncodedBatch(topic, partition, data, count, largest, codec=self._codec)


def _by_topic(batch: Any) -> tuple[Any, list[tuple[str, int, int]]]:
    """The rows put together by topic, each topic's in their order, and (topic, first row, row after the last)."""
    column = batch.column("topic")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"row {row} has no topic: its column is null; give every row one, or one topic to all rows")
    found = column.dictionary_encode()
    names = found.dictionary.to_pylist()
    if len(names) == 1:
        return batch, [(names[0], 0, batch.num_rows)]
    counts = pc.value_counts(found.indices)
    batch = batch.take(pc.sort_indices(found.indices))  # stable: equal topics keep their order
    runs = []
    begin = 0
    for index, rows in sorted(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)):
        runs.append((names[index], begin, begin + rows))
        begin += rows
    return batch, runs
