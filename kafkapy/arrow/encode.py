"""Encodes rows of Arrow record batches into Kafka record batches, which a producer can send as they are.

    encoder = RowEncoder(producer.partition_count, topic="orders", codec=4)
    for rows in table.to_batches():
        for batch in encoder.feed(rows):
            producer.send_batch(batch)
    for batch in encoder.finish():
        producer.send_batch(batch)

`kafkapy.arrow.row_columns` defines the columns and their types.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kafkapy._ext.row_batches import BadRow, Rows, TopicBatches
from kafkapy.arrow.row_columns import RefusedRow, check_schema, decoded, rows_of
from kafkapy.client.producing.partitioner import StickyChoice, all_partitions
from kafkapy.record.encoded import EncodedBatch

__all__ = ["EncodedBatch", "RowEncoder"]


class RowEncoder:
    """Encodes rows of Arrow record batches into Kafka record batches.

    There is one open Kafka record batch for each partition. Rows of a partition keep their order. A row's partition is
    its column `partition`. Without it, the key's hash chooses the partition. For a row without a key, Kafka's sticky
    partitioner (DefaultPartitioner, KIP-480) does.

    Args:
        partition_count: Returns a topic's number of partitions, like `RecordProducer.partition_count`. Called once for
            every Arrow record batch and topic.
        available: Returns the partitions with a leader, which rows without key and partition can go to, like
            `RecordProducer.available_partitions`.
        topic: The topic of all rows. None: each row's column `topic`.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes: The size of a full Kafka record batch before compression. A single record may be larger.
        open_bytes: When the open Kafka record batches exceed this size in total, all are closed after the current Arrow
            record batch.
    """

    def __init__(
        self,
        partition_count: Callable[[str], int],
        *,
        available: Callable[[str, int], Sequence[int]] = all_partitions,
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
        self._sticky = StickyChoice(available)
        self._fed = 0  # number of rows in earlier record batches

    def feed(self, batch: Any) -> Iterator[EncodedBatch]:
        """Encode the rows of a pyarrow.RecordBatch. Yield the Kafka record batches that become full.

        Raises:
            ValueError: A column is unknown or has a wrong type.
            RefusedRow: A row cannot be a record. The message names the column, or the row's number among all rows fed
                so far, counted from 0. Rows before it may have been encoded.
            KafkaError: The errors of `partition_count`, for example for a missing topic.
        """
        check_schema(batch.schema, has_topic=self._topic is not None, tombstones=True)
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
        """Yield the open Kafka record batches, which are not full yet. The encoder can be used again afterwards."""
        for topic in self._topics:
            yield from self._close(topic)

    def _by_topic(self, column: Any) -> tuple[Any, list[tuple[str, range]]]:
        """Return row indices sorted by topic, and for each topic the range that its rows have in these indices.

        The indices are None if all rows have the same topic. Raises RefusedRow for a row without a topic.
        """
        import pyarrow.compute as pc  # slow to import, and readers of topics, which import this module, do not need it

        column = decoded(column)  # an existing dictionary may have names that are repeated, unused or null
        if column.null_count:
            row = self._fed + pc.index(column.is_null(), True).as_py()
            raise RefusedRow(f"row {row} has no topic: its column is null; give it one, or one topic to all rows")
        found = column.dictionary_encode()
        names = found.dictionary.cast(pa.string()).to_pylist()
        if len(names) == 1:
            return None, [(names[0], range(len(column)))]
        counts = pc.value_counts(found.indices)
        topics = []
        begin = 0
        for index, count in sorted(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)):
            topics.append((names[index], range(begin, begin + count)))
            begin += count
        return pc.sort_indices(found.indices), topics  # a stable sort: the rows of a topic keep their order

    def _encode(self, topic: str, rows: Rows, places: range) -> Iterator[EncodedBatch]:
        """Encode the rows of one topic. Yield the Kafka record batches that become full.

        `places` are the positions of the topic's rows in the encoding order of `rows`. Raises RefusedRow.
        """
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
        """Yield the open Kafka record batches of a topic, so that none is open afterwards."""
        batches = self._topics.get(topic)
        if batches is not None:
            for partition in batches.open_partitions():
                yield self._take(topic, batches, partition)

    def _take(self, topic: str, batches: TopicBatches, partition: int) -> EncodedBatch:
        """Return the open Kafka record batch of a partition, encoded. The batch is no longer open then."""
        data, count, largest = batches.take(partition)
        return EncodedBatch(topic, partition, data, count, largest, codec=self._codec)
