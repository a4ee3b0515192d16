"""Converts Kafka record batches of a partition to Arrow record batches with the columns of Spark's Kafka source.

    rows = RowBuilder("orders", 3, end=1_000_000)
    for buffer in buffers:                     # complete Kafka record batches of a Fetch response or a segment file
        for batch in rows.feed(buffer):        # yields a pyarrow.RecordBatch when max_rows or max_bytes is reached
            ...
    if (batch := rows.finish()) is not None:   # the remaining rows
        ...

Source: Spark's KafkaRecordToRowConverter. As in Spark, headers are null if a record has none, and a record
without a timestamp (message format 0) has -1 ms and timestampType -1. Unlike in Spark, a timestamp that exceeds the
range of microseconds becomes the nearest valid one instead of an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kafkapy._ext.columns import Columns, Memory
from kafkapy.record.arrow import bytes_array, headers_array
from kafkapy.record.columns import DamagedBatch, column_builder

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)

MAX_ROWS = 1 << 16
MAX_BYTES = 16 << 20

# The names that the columns have in ColumnBuilder, which does not build the constant columns topic and partition.
_BUILT = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
_MOST_US = (1 << 63) - 1


class DamagedRows(ValueError):
    """A record batch in a partition is malformed or has a wrong checksum.

    `reason` is a phrase that continues the text "the batch ...".
    """

    def __init__(self, topic: str | None, partition: int | None, offset: int, reason: str) -> None:
        super().__init__(f"{topic}-{partition} is damaged at offset {offset}: the batch {reason}.")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[DamagedRows], tuple[str | None, int | None, int, str]]:
        return DamagedRows, (self.topic, self.partition, self.offset, self.reason)


def schema_of(columns: Sequence[str] | None = None, include_headers: bool = True) -> pa.Schema:
    """Return the Arrow schema with the named columns, in the given order.

    With None, return all columns, with `headers` if `include_headers`. Raises ValueError for an unknown or repeated
    name, and for an empty list.
    """
    if columns is None:
        return SCHEMA if include_headers else SCHEMA.remove(len(SCHEMA) - 1)
    if isinstance(columns, str):
        raise ValueError(f"columns is the text {columns!r}: give a list of names, as in [{columns!r}]")
    for name in columns:
        if name not in SCHEMA.names:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(SCHEMA.names)}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"a column is named twice: {', '.join(columns)}")
    if not columns:
        raise ValueError(f"no column is named; there are {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in columns])


class RowBuilder:
    """Converts the records of one partition to Arrow record batches.

    Rows of a batch that is not full yet are kept until the next `feed` or `finish`.

    Args:
        topic, partition: The values of these columns. None makes the column null, for files that do not have the name.
        columns, include_headers: As in `schema_of`.
        start, end: Only records with start <= offset < end are returned.
        start_timestamp, end_timestamp: Only records with start <= timestamp < end (ms) are returned.
        max_rows, max_bytes: The size of a full batch of rows. A batch has at least one row.
        aborted: (producer id, first offset) of each aborted transaction; see `set_aborted`.
    """

    def __init__(
        self,
        topic: str | None,
        partition: int | None,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = True,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.schema = schema_of(columns, include_headers)
        self._builder = column_builder(
            tuple(_BUILT[name] for name in self.schema.names if name in _BUILT),
            max_rows=max_rows,
            max_bytes=max_bytes,
            min_offset=start,
            end_offset=end,
            min_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            aborted=aborted,
        )

    @property
    def consumed(self) -> int:
        """The position after the last complete Kafka record batch in the buffer that was fed last."""
        return self._builder.consumed

    @property
    def past_end(self) -> bool:
        """True if a record batch after the offset `end` was read, so that no more rows will come."""
        return self._builder.past_end

    def set_aborted(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Replace the list of aborted transactions by the list in the next Fetch response.

        Each transaction is given as (producer id, first offset).
        """
        self._builder.set_aborted(aborted)

    def feed(self, buffer: bytes | bytearray | memoryview) -> Iterator[pa.RecordBatch]:
        """Read the Kafka record batches of a buffer and yield an Arrow record batch whenever enough rows are read.

        The caller has to iterate to the end. Raises DamagedRows for a corrupt record batch. The rows before the damage
        are returned by `finish`.
        """
        try:
            for columns in self._builder.feed(buffer):
                yield self._batch(columns)
        except DamagedBatch as error:
            offset = int.from_bytes(buffer[error.position : error.position + 8], "big", signed=True)
            raise DamagedRows(self.topic, self.partition, offset, error.reason) from None

    def finish(self) -> pa.RecordBatch | None:
        """Return an Arrow record batch with the rows that are not returned yet, None if there are none."""
        columns = self._builder.finish()
        return None if columns is None else self._batch(columns)

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        """Return an Arrow record batch of the columns that the column builder has filled."""
        return pa.RecordBatch.from_arrays(
            [self._array(name, columns) for name in self.schema.names], schema=self.schema
        )

    def _array(self, name: str, columns: Columns) -> pa.Array:
        """Return the Arrow array for one column of the schema."""
        rows = columns.rows
        if name == "topic":
            return _repeated(self.topic, pa.string(), _size_class(rows)).slice(0, rows)
        if name == "partition":
            return _repeated(self.partition, pa.int32(), _size_class(rows)).slice(0, rows)
        column: Any = columns.columns[_BUILT[name]]
        if name == "offset":
            return _numbers(column, pa.int64(), rows)
        if name == "timestamp":
            return _microseconds(column, rows)
        if name == "timestampType":
            return _numbers(column, pa.int8(), rows).cast(pa.int32())
        if name == "headers":
            return _null_where_empty(headers_array(column, HEADERS, rows))
        return bytes_array(column, pa.binary(), rows)


def _numbers(column: Memory, kind: Any, rows: int) -> pa.Array:
    """Return an Arrow array of `rows` numbers that uses the column's memory without a copy."""
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(column)])


def _null_where_empty(lists: pa.Array) -> pa.Array:
    """Return an array of lists in which empty lists are null, without copying the values."""
    import pyarrow.compute as pc

    validity = pc.greater(pc.list_value_length(lists), 0).buffers()[1]  # boolean arrays are bitmaps, as validity is
    return pa.Array.from_buffers(lists.type, len(lists), [validity, lists.buffers()[1]], children=[lists.values])


def _microseconds(column: Memory, rows: int) -> pa.Array:
    """Return a column of timestamps in ms as microseconds. Timestamps out of range become the nearest valid one."""
    stored = _numbers(column, pa.timestamp("ms", "UTC"), rows)
    try:
        return stored.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        import pyarrow.compute as pc

        most = _MOST_US // 1000
        number = stored.cast(pa.int64())
        within = pc.min_element_wise(pc.max_element_wise(number, -most), most)
        return within.cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP)


def _size_class(rows: int) -> int:
    """Return the size to cache a constant column with: `rows` rounded up to a power of two, at least 1024.

    The cached column is sliced to the number of rows, so that few sizes are cached.
    """
    return 1 << max(10, (rows - 1).bit_length())


@lru_cache(maxsize=64)
def _repeated(value: str | int | None, kind: Any, count: int) -> pa.Array:
    """Return an Arrow array that contains a value `count` times. Arrays are cached."""
    return pa.repeat(pa.scalar(value, kind), count)
