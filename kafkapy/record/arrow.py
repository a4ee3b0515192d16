"""Columns of records as Arrow's own objects; needs pyarrow, which is imported by whoever imports this module.

Nothing is copied: an array's memory is that of the columns.
"""

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
    """The schema of record batches with these columns, in the order of `kafkapy.record.columns.COLUMNS`.

    The timestamp is null where the record has none (-1); what else may be missing is -1, as in Kafka.
    """
    wanted = set(names)
    return pa.schema(
        pa.field(name, pa.large_binary() if large_offsets and kind == pa.binary() else kind, name in _NULLABLE)
        for name, kind in _TYPES.items()
        if name in wanted
    )


def record_batch(columns: Columns, schema: Any) -> Any:
    """A pyarrow.RecordBatch of the columns; `schema` is that of their names."""
    arrays = [_array(columns.columns[field.name], field.type, columns) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Memory | Bytes | Headers, kind: Any, columns: Columns) -> Any:
    if isinstance(column, Bytes):
        return _bytes(column, kind, columns.rows)
    if isinstance(column, Headers):
        count = memoryview(column.offsets).cast("i")[columns.rows]
        pairs = pa.StructArray.from_arrays(
            [_bytes(column.names, pa.string(), count), _bytes(column.values, pa.binary(), count)],
            fields=[_HEADER.field(0), _HEADER.field(1)],
        )
        return pa.Array.from_buffers(kind, columns.rows, [None, pa.py_buffer(column.offsets)], children=[pairs])
    array = pa.Array.from_buffers(kind, columns.rows, [None, pa.py_buffer(column)])
    if pa.types.is_timestamp(kind) and columns.without_timestamp:
        import pyarrow.compute as pc

        array = pc.if_else(pc.equal(array.cast(pa.int64()), -1), pa.scalar(None, kind), array)
    return array


def _bytes(column: Bytes, kind: Any, rows: int) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)
