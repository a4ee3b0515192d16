"""The columns of Arrow rows that are written to a topic, and access to the memory of these columns.

    key, value    binary or string (also large, view, fixed size, dictionary); null: no key, a tombstone
    topic         string or dictionary of strings
    partition     any integer; null: chosen by the key
    headers       list of struct<key: string, value: binary>; null: no headers
    timestamp     a timestamp of any unit, or ms since 1970 as int64; null or -1 ms (no timestamp): the current time
    offset, timestampType    ignored; rows that were read from a topic have these columns

Only `value` is required, unless tombstones are allowed. Source: the columns of Spark's KafkaWriter, which has no
timestamp.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafkapy._ext.row_batches import Rows

COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
NOT_USED = ("offset", "timestampType")

NO_TIMESTAMP = -1  # milliseconds: Kafka's RecordBatch.NO_TIMESTAMP

_BYTES = "binary or string"
_HEADERS = "list<struct<key: string, value: binary>>"


class RefusedRow(ValueError):
    """A row cannot be written as a record. The message says which row or column, and why."""


def check_schema(schema: Any, *, has_topic: bool, tombstones: bool) -> None:
    """Raise ValueError for the first column that cannot be written to a topic. The message is a sentence.

    has_topic: True if a topic is given for all rows, so that no column `topic` is needed.
    tombstones: True to allow rows without a column `value`. If False, they are refused, because a misspelled name of
    that column would otherwise delete keys.
    """
    for name in schema.names:
        if name not in COLUMNS and name not in NOT_USED:
            raise ValueError(f"a record has no column {name!r}: it has {', '.join(COLUMNS)}; leave it out")
        if schema.names.count(name) > 1:
            raise ValueError(f"there are several columns {name!r}; leave only one")
    if "value" not in schema.names and "key" not in schema.names:
        raise ValueError(f"the rows have neither a column 'value' nor 'key'; they have {schema.names}")
    if "value" not in schema.names and not tombstones:
        raise ValueError(
            "the rows have no column 'value', so each would be a tombstone, which deletes its key from a compacted "
            f"topic; they have {schema.names}; name a column 'value', or set tombstones to true if you want that"
        )
    if not has_topic and "topic" not in schema.names:
        raise ValueError("the rows have no column 'topic', and no topic is given for all of them; add one or the other")
    for field in schema:
        if field.name in _ALLOWED and not pa.types.is_null(field.type):
            allowed, words = _ALLOWED[field.name]
            if not allowed(field.type):
                raise ValueError(f"column {field.name!r} has the type {field.type}; it has to be {words}")


def rows_of(batch: Any, order: Any = None) -> Rows:
    """Return the rows of a pyarrow.RecordBatch as Rows, the encoder's input. Plain columns are not copied.

    The schema has to be checked with `check_schema` before. `order` is a pyarrow array of uint64 with the indices of
    the rows in the order in which to encode them; None: the original order. Raises RefusedRow for an invalid partition
    or timestamp, or a null header.
    """
    columns = {name: batch.column(name) for name in COLUMNS if name in batch.schema.names}
    columns = {name: column for name, column in columns.items() if not pa.types.is_null(column.type)}
    headers = header_key = header_value = None
    if "headers" in columns:
        headers, header_key, header_value = _headers(columns["headers"])
    return Rows(
        batch.num_rows,
        _bytes(columns["key"]) if "key" in columns else None,
        _bytes(columns["value"]) if "value" in columns else None,
        headers,
        header_key,
        header_value,
        _numbers(_partitions(columns["partition"])) if "partition" in columns else None,
        _numbers(_milliseconds(columns["timestamp"])) if "timestamp" in columns else None,
        None if order is None else order.buffers()[1],
    )


def decoded(column: Any) -> Any:
    """Return the column with its values in place of a dictionary encoding. Other columns are returned unchanged."""
    if not pa.types.is_dictionary(column.type):
        return column
    if column.type.value_type in _VIEWS:  # pyarrow cannot decode dictionaries of these
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_binary()))
    return column.dictionary_decode()


def _is_bytes(kind: Any) -> bool:
    """Return True if the Arrow type can be the type of keys and values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in _PLAIN or kind in _VIEWS or pa.types.is_fixed_size_binary(kind)


def _is_text(kind: Any) -> bool:
    """Return True if the Arrow type is a string or a dictionary of strings."""
    return kind in _TEXTS or (pa.types.is_dictionary(kind) and kind.value_type in _TEXTS)


def _is_headers(kind: Any) -> bool:
    """Return True if the Arrow type is a list of (key, value) structs of bytes or strings."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    names = [pair.field(index).name for index in range(pair.num_fields)]
    return names == ["key", "value"] and all(
        _is_bytes(field.type) or pa.types.is_null(field.type) for field in (pair.field(0), pair.field(1))
    )


_PLAIN = {pa.binary(): 4, pa.string(): 4, pa.large_binary(): 8, pa.large_string(): 8}
# pyarrow has these view types since version 16.
_VIEWS = [getattr(pa, name)() for name in ("binary_view", "string_view") if hasattr(pa, name)]
_TEXTS = [pa.string(), pa.large_string(), *_VIEWS[1:]]
_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "key": (_is_bytes, _BYTES),
    "value": (_is_bytes, _BYTES),
    "topic": (_is_text, "string"),
    "partition": (pa.types.is_integer, "int32"),
    "headers": (_is_headers, _HEADERS),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) or kind == pa.int64(), "a timestamp, or int64 milliseconds"),
}


def _bytes(column: Any) -> tuple[Any, Any, Any, int, int, int]:
    """Return the buffers of a column of keys or values.

    The tuple is: validity, value offsets, data, index of the first value, length, bytes of each value offset (4 or 8).
    """
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    column = decoded(column)
    if column.type not in _PLAIN:
        column = column.cast(pa.large_binary() if column.type in _VIEWS else pa.binary())
    validity, offsets, data = column.buffers()
    if offsets is None or offsets.size == 0:  # an empty Arrow column may have no offsets
        offsets = bytes(8)
    return validity, offsets, data, column.offset, len(column), _PLAIN[column.type]


def _headers(column: Any) -> tuple[Any, Any, Any]:
    """Return the buffers of the header lists, of the header keys and of the header values.

    Each is a tuple as in `_bytes`. Raises RefusedRow if a header is null.
    """
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    pairs = column.values
    if pairs.null_count and column.flatten().null_count:
        raise RefusedRow("a row has a header that is null; leave it out of the row's list")
    validity, offsets = column.buffers()[:2]
    if offsets is None or offsets.size == 0:
        offsets = bytes(4)
    return (
        (validity, offsets, None, column.offset, len(column), 4),
        _bytes(pairs.field(0)),
        _bytes(pairs.field(1)),
    )


def _partitions(column: Any) -> Any:
    """Return the column `partition` as int32. Raise RefusedRow if a number does not fit."""
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as reason:
        raise RefusedRow(f"column 'partition' has a number that is not a partition: {reason}") from None


def _milliseconds(column: Any) -> Any:
    """Return the timestamps as milliseconds in an int64 column, with null for rows without a timestamp.

    Raises RefusedRow for a time before 1970.
    """
    import pyarrow.compute as pc  # slow to import; see encode

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64())
    least = pc.min(column).as_py()
    if least == NO_TIMESTAMP:  # in rows that were read from message format 0
        column = pc.if_else(pc.equal(column, NO_TIMESTAMP), pa.scalar(None, pa.int64()), column)
    elif least is not None and least < 0:
        raise RefusedRow(f"column 'timestamp' has a time before 1970 ({least} ms), which a record cannot have")
    return column


def _numbers(column: Any) -> tuple[Any, Any, int]:
    """Return the buffers of a column of numbers: validity, values, index of the first value."""
    validity, values = column.buffers()
    return validity, values, column.offset
