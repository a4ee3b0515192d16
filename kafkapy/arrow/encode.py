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

import pyarrow as pa

from kafkapy._ext.row_batches import BadRow, Rows, TopicBatches
from kafkapy.arrow.row_columns import RefusedRow, check_schema, decoded, rows_of
from kafkapy.client.partitioner import StickyChoice
from kafkapy.record.encoded import EncodedBatch

__all__ = ["EncodedBatch", "RowEncoder"]


class RowEncoder:
    """Keeps one open batch a partition. Rows of a partition stay in their order.

    A row goes to the partition that it names, else to the one of its key's hash, else to one that changes with each
    batch (Kafka's DefaultPartitioner, KIP-480).

    Args:
        partition_count: how many partitions a topic has, as `RecordProducer.partition_count`; asked once for every
            record batch and topic.
        topic: where all rows go. None: where their column `topic` says.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes: a batch is closed when its records, not compressed, reach this. One record may be larger.
        open_bytes: what all open batches may take together between two record batches; beyond, they are closed as
            they are.
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
        self._fed = 0  # rows before this record batch

    def feed(self, batch: Any) -> Iterator[EncodedBatch]:
        """Takes the rows of a pyarrow.RecordBatch; the batches that became full, in order.

        Raises:
            ValueError: a column that is not known or of a wrong type.
            RefusedRow: a row that cannot be a record; the sentence names the column, or the row by its number among
                all that were fed, from 0. Rows before it may have been encoded.
            KafkaError: what `partition_count` raises, such as for a topic that is not there.
        """
        check_schema(batch.schema, has_topic=self._topic is not None)
        if batch.num_rows and self._topic is not None:
            yield from self._encode(self._topic, rows_of(batch), range(batch.num_rows))
        elif batch.num_rows:
            order, topics = self._by_topic(batch.column("topic"))
            rows = rows_of(batch, order)
            for topic, places in topics:
                yield from self._encode(topic, rows, places)
        self._fed += batch.num_rows
        if sum(one.open_bytes for one in self._topics.values()) > self._open_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[EncodedBatch]:
        """The batches that are still open. The encoder can be fed again."""
        for topic in self._topics:
            yield from self._close(topic)

    def _by_topic(self, column: Any) -> tuple[Any, list[tuple[str, range]]]:
        """An order of the rows that puts them together by topic (None: as they are), and each topic's places in it."""
        import pyarrow.compute as pc  # takes long, and readers of topics, who import this module too, do not need it

        if column.null_count:
            row = self._fed + pc.index(column.is_null(), True).as_py()
            raise RefusedRow(f"row {row} has no topic: its column is null; give it one, or one topic to all rows")
        # Its own dictionary, if it has one, may have a name twice, and names that no row has.
        found = decoded(column).dictionary_encode()
        names = found.dictionary.cast(pa.string()).to_pylist()
        if len(names) == 1:
            return None, [(names[0], range(len(column)))]
        counts = pc.value_counts(found.indices)
        topics = []
        begin = 0
        for index, count in sorted(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)):
            topics.append((names[index], range(begin, begin + count)))
            begin += count
        return pc.sort_indices(found.indices), topics  # stable: the rows of a topic keep their order

    def _encode(self, topic: str, rows: Rows, places: range) -> Iterator[EncodedBatch]:
        count = self._partition_count(topic)
        batches = self._topics.get(topic)
        if batches is None or batches.partitions != count:
            yield from self._close(topic)
            batches = self._topics[topic] = TopicBatches(count, self._batch_bytes)
        now = int(time.time() * 1000)
        at = places.start
        while True:
            batches.sticky = self._sticky.partition(topic, count)
            try:
                at = batches.append(rows, at, places.stop, now)
            except BadRow as bad:
                raise RefusedRow(f"row {self._fed + bad.row}, for topic {topic!r}, {bad.reason}") from None
            if batches.full < 0:
                break
            full = batches.full
            yield self._take(topic, batches, full)
            self._sticky.batch_is_full(topic, full, count)

    def _close(self, topic: str) -> Iterator[EncodedBatch]:
        batches = self._topics.get(topic)
        if batches is not None:
            for partition in batches.open_partitions():
                yield self._take(topic, batches, partition)

    def _take(self, topic: str, batches: TopicBatches, partition: int) -> EncodedBatch:
        data, count, largest = batches.take(partition)
        return EncodedBatch(topic, partition, data, count, largest, codec=self._codec)
