"""Converts columns of records to pyarrow objects without copying. This module imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkapy._ext.columns import Bytes, Columns, Headers, Memory

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_TYPES: dict[str, Any] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int8(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("element", _HEADER, nullable=False)),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "sequence": pa.int32(),
    "leader_epoch": pa.int32(),
    "attributes": pa.int16(),
}
_NULLABLE = {"timestamp", "key", "value"}


def schema_of(names: Iterable[str], *, large_offsets: bool = False) -> Any:
    """Return the Arrow schema of the columns `names`, in the order of `kafkapy.record.columns.COLUMNS`.

    A missing timestamp (-1) becomes null; other missing values are -1, as in Kafka. With large_offsets, keys and values
    have 64-bit offsets.
    """
    wanted = set(names)
    return pa.schema(
        pa.field(name, pa.large_binary() if large_offsets and kind == pa.binary() else kind, name in _NULLABLE)
        for name, kind in _TYPES.items()
        if name in wanted
    )


def record_batch(columns: Columns, schema: Any) -> Any:
    """Return the columns as a pyarrow.RecordBatch. `schema` must be the result of `schema_of` for their names."""
    arrays = [_array(columns.columns[field.name], field.type, columns) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Memory | Bytes | Headers, kind: Any, columns: Columns) -> Any:
    if isinstance(column, Bytes):
        return bytes_array(column, kind, columns.rows)
    if isinstance(column, Headers):
        return headers_array(column, kind, columns.rows)
    array = pa.Array.from_buffers(kind, columns.rows, [None, pa.py_buffer(column)])
    if pa.types.is_timestamp(kind) and columns.without_timestamp:
        import pyarrow.compute as pc

        array = pc.if_else(pc.equal(array.cast(pa.int64()), -1), pa.scalar(None, kind), array)
    return array


def headers_array(column: Headers, kind: Any, rows: int) -> Any:
    """Return a column of record headers as a pyarrow array of type `kind`: for each row a list of (name, value)
    structs."""
    count = memoryview(column.offsets).cast("i")[rows]
    header = kind.value_type
    pairs = pa.StructArray.from_arrays(
        [bytes_array(column.names, pa.string(), count), bytes_array(column.values, pa.binary(), count)],
        fields=[header.field(0), header.field(1)],
    )
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(column.offsets)], children=[pairs])


def bytes_array(column: Bytes, kind: Any, rows: int) -> Any:
    """Return a column of keys, values or text as a pyarrow array of type `kind`, which must have the column's offset
    width."""
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)
