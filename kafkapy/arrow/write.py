"""Arrow tables into topics, the counterpart of `kafkapy.arrow.read`.

written = kafkapy.arrow.write("orders", frame, bootstrap_servers="127.0.0.1:9092", codec="zstd")
print(written.rows)
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkapy.arrow.encode import RowEncoder
from kafkapy.arrow.row_columns import check_schema
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.record_producer import RecordProducer
from kafkapy.client.transactional_producer import TransactionalProducer
from kafkapy.record.compression import codec_of


@dataclass(frozen=True)
class Written:
    """How many rows were written, and where to; each is acknowledged (acks=0: sent)."""

    partitions: dict[TopicPartition, int]

    @property
    def rows(self) -> int:
        return sum(self.partitions.values())


def write(
    topic: str | None,
    rows: Any,
    *,
    bootstrap_servers: str | Sequence[str] | Cluster,
    acks: int = -1,
    codec: str = "none",
    transactional_id: str | None = None,
    transaction_timeout_s: float = 60.0,
    batch_bytes: int = 256 * 1024,
    timeout_s: float = 60.0,
) -> Written:
    """Writes each row as a record, and returns when all are acknowledged.

    The columns are those of `kafkapy.arrow.row_columns`. A row goes to the partition that it names, else to the one
    that its key's hash chooses, as with Kafka's own clients.

    Args:
        topic: where the rows go; None: where their column `topic` says.
        rows: a pyarrow Table, RecordBatch or RecordBatchReader, or whatever else gives an Arrow stream (a frame of
            Polars or pandas, a relation of DuckDB). It is read as it is sent: what is read ahead is bounded.
        acks: -1 all in-sync replicas, 1 the leader, 0 nobody answers.
        codec: none, gzip, snappy, lz4 or zstd.
        transactional_id: makes the rows one transaction: all of them become visible, or none.
        transaction_timeout_s: after this the broker aborts the transaction.
        batch_bytes: a batch of records is closed when it reaches this, before compression.
        timeout_s: how long a batch may take to be acknowledged, also while a broker is away.
    Raises:
        TypeError: `rows` is no Arrow data.
        ValueError: a column or a row that cannot be; without a transaction the rows before it may have been written.
        KafkaError: the topic cannot be written to.
        ClientError: rows were not stored, or no broker was reached.
    """
    reader = _reader(rows)
    check_schema(reader.schema, has_topic=topic is not None)
    if transactional_id is None:
        producer = RecordProducer(bootstrap_servers, acks=acks, timeout_s=timeout_s)
    elif acks != -1:
        raise ValueError(f"a transaction needs acks=-1 (all), not {acks}")
    else:
        producer = TransactionalProducer(
            bootstrap_servers, transactional_id, transaction_timeout_s=transaction_timeout_s, timeout_s=timeout_s
        )
    encoder = RowEncoder(producer.partition_count, topic=topic, codec=codec_of(codec), batch_bytes=batch_bytes)
    with producer:
        if isinstance(producer, TransactionalProducer):
            with producer.transaction():
                return _send(reader, encoder, producer)
        return _send(reader, encoder, producer)


def _send(reader: Any, encoder: RowEncoder, producer: RecordProducer) -> Written:
    sent: Counter[TopicPartition] = Counter()
    for rows in reader:
        for batch in encoder.feed(rows):
            producer.send_batch(batch)
            sent[batch.topic, batch.partition] += batch.count
    for batch in encoder.finish():
        producer.send_batch(batch)
        sent[batch.topic, batch.partition] += batch.count
    producer.flush()
    return Written(dict(sent))


def _reader(rows: Any) -> Any:
    """A pyarrow.RecordBatchReader of the rows."""
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.Table):
        return rows.to_reader()
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
    if hasattr(rows, "__arrow_c_array__"):
        batch = pa.record_batch(rows)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise TypeError(
        f"rows is a {type(rows).__name__}, which is no Arrow data: give a pyarrow Table or RecordBatchReader, or "
        "something that has __arrow_c_stream__, such as a frame of Polars"
    )
