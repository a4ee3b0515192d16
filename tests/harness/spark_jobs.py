"""Functions for drivers (see perf.spark_driver.Driver): read and write topics with any source.

Rows are plain tuples, timestamps microseconds since 1970, headers a list of (name, value).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Headers = list[tuple[str, bytes | None]]
TO_WRITE = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"


class Row(NamedTuple):
    """One row of a Kafka source."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


def read(spark: "SparkSession", source: str, options: Mapping[str, str]) -> list[Row]:
    """Read a batch; return the rows in the order of partitions and offsets."""
    return rows(spark.read.format(source).options(**options).load())


def rows(frame: "DataFrame") -> list[Row]:
    """Return all rows of a source's frame; headers are None if they are null or have no column."""
    from pyspark.sql.functions import col, unix_micros

    columns = [col(name) for name in ("topic", "partition", "offset", "timestampType", "key", "value")]
    columns += [col("headers")] if "headers" in frame.columns else []
    frame = frame.orderBy("topic", "partition", "offset").select(unix_micros("timestamp"), *columns)
    found = []
    for timestamp, topic, partition, offset, kind, key, value, *column in frame.collect():
        headers = column[0] if column else None
        names = None if headers is None else [(name, _bytes(content)) for name, content in headers]
        found.append(Row(topic, partition, offset, timestamp, kind, _bytes(key), _bytes(value), names))
    return found


def read_where(spark: "SparkSession", source: str, options: Mapping[str, str]) -> tuple[list[bytes], int]:
    """Read a batch; return the values, and the number of executors that read them."""

    def with_process(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import os

        import pyarrow as pa

        for batch in batches:
            # The parent process of the workers is another one for each executor.
            process = pa.array([os.getppid()] * len(batch), pa.int64())
            yield pa.record_batch([batch.column(0), process], ["value", "process"])

    frame = spark.read.format(source).options(**options).load().select("value")
    found = frame.mapInArrow(with_process, "value binary, process long").collect()
    return [bytes(row.value) for row in found], len({row.process for row in found})


def write(spark: "SparkSession", source: str, rows: Sequence[tuple[object, ...]], options: Mapping[str, str]) -> None:
    """Write a batch of (topic, partition or None, key, value, headers) in two tasks."""
    frame = spark.createDataFrame(rows, TO_WRITE).repartition(2, "key")
    if all(row[1] is None for row in rows):
        frame = frame.drop("partition")
    frame.write.format(source).options(**options).mode("append").save()  # the mode that sources in Python need


def copy_stream(
    spark: "SparkSession",
    source: str,
    options: Mapping[str, str],
    sink: str,
    sink_options: Mapping[str, str],
) -> list[int]:
    """Run a query from source to sink over the available records; return the number of rows of every micro-batch.

    `sink_options` has the checkpointLocation. Rows keep key, value and headers.
    """
    stream = spark.readStream.format(source).options(**options).load()
    columns = [name for name in ("key", "value", "headers") if name in stream.columns]
    writing = stream.select(*columns).writeStream.format(sink).options(**sink_options)
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    failed = query.exception()
    if failed is not None:
        raise failed
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def set_option(spark: "SparkSession", name: str, value: str) -> None:
    """Change a setting of the session."""
    spark.conf.set(name, value)


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    """Return bytes: pyspark 4.0 gives bytearrays, later versions bytes."""
    return None if value is None else bytes(value)
