"""Writes Arrow tables to topics, the counterpart of `kafkapy.arrow.read`.

written = kafkapy.arrow.write("orders", frame, bootstrap_servers="127.0.0.1:9092", codec="zstd")
print(written.rows)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafkapy.arrow.encode import RowEncoder
from kafkapy.arrow.row_columns import check_schema
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.client.security import Security
from kafkapy.record.compression import codec_of


@dataclass(frozen=True)
class Written:
    """The number of rows that were written to each partition.

    All rows are acknowledged; with acks=0, they are only sent.
    """

    partitions: dict[TopicPartition, int]

    @property
    def rows(self) -> int:
        """The number of rows written to all partitions together."""
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
    tombstones: bool = False,
    security: Security | Mapping[str, Any] | None = None,
) -> Written:
    """Write each row as a record to a topic, and wait until all records are acknowledged.

    `kafkapy.arrow.row_columns` defines the columns. A row's partition is its column `partition`. Without it, the key's
    hash chooses the partition, as in Kafka's own clients.

    Args:
        topic: The topic of all rows. None: each row's column `topic`.
        rows: A pyarrow Table, RecordBatch or RecordBatchReader, or another object with an Arrow stream (a Polars or
            pandas frame, a DuckDB relation). The rows are read while earlier rows are sent, with bounded memory.
        acks: -1: all in-sync replicas; 1: the leader; 0: no response.
        codec: none, gzip, snappy, lz4 or zstd.
        transactional_id: Write all rows in one transaction with this id. None: no transaction.
        transaction_timeout_s: The broker aborts the transaction after this time.
        batch_bytes: The size of a full record batch before compression.
        timeout_s: How long a record batch may take to be acknowledged, with all retries.
        tombstones: Write rows without a column `value` as tombstones, instead of refusing them.
        security: The properties for TLS and login, if `bootstrap_servers` has addresses; as for Cluster.
    Raises:
        TypeError: `rows` is not Arrow data.
        ValueError: A column or row is invalid. Without a transaction, earlier rows may have been written.
        KafkaError: The topic cannot be written to.
        ClientError: Rows were not stored, or no broker was reached.
    """
    reader = _reader(rows)
    check_schema(reader.schema, has_topic=topic is not None, tombstones=tombstones)
    if transactional_id is None:
        producer = RecordProducer(bootstrap_servers, acks=acks, timeout_s=timeout_s, security=security)
    elif acks != -1:
        raise ValueError(f"a transaction needs acks=-1 (all), not {acks}")
    else:
        producer = TransactionalProducer(
            bootstrap_servers,
            transactional_id,
            transaction_timeout_s=transaction_timeout_s,
            timeout_s=timeout_s,
            security=security,
        )
    encoder = RowEncoder(
        producer.partition_count,
        available=producer.available_partitions,
        topic=topic,
        codec=codec_of(codec),
        batch_bytes=batch_bytes,
    )
    with producer:
        if isinstance(producer, TransactionalProducer):
            with producer.transaction():
                return _send(reader, encoder, producer)
        return _send(reader, encoder, producer)


def _send(reader: Any, encoder: RowEncoder, producer: RecordProducer) -> Written:
    """Encode and send all rows, and wait for the acknowledgements. Return the number of rows by partition."""
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
    """Return a pyarrow.RecordBatchReader of the rows. Raise TypeError if `rows` is not Arrow data."""
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
        f"rows is a {type(rows).__name__}, which is not Arrow data: give a pyarrow Table or RecordBatchReader, or "
        "an object with __arrow_c_stream__, such as a Polars frame"
    )
