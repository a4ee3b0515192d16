"""The columns of loaded rows.

A row has the record's columns (partition, offset, timestamp, key, optionally headers) and then the value: a column
`value`, or the fields that it was decoded to. Topic and date are in the directory names, as readers of partitioned
Parquet expect. The date is the timestamp's date in UTC.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafkapy.arrow.rows import HEADERS, TIMESTAMP
from kafkapy.spark.load.errors import WrongOption

RECORD = (
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", TIMESTAMP),
    ("key", pa.binary()),
)
REASON = "reason"
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
NO_TIMESTAMP_US = -1000  # Kafka's -1 ms, for records of format 0
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # the years 1 to 9999, which readers accept as dates


def columns_to_read(headers: bool) -> list[str]:
    """Return the names of the columns that a task reads from a topic, which include headers if `headers` is True."""
    return [name for name, _ in RECORD] + (["headers"] if headers else []) + ["value"]


def row_schema(prefix: str, headers: bool, fields: pa.Schema | None) -> pa.Schema:
    """Return the Arrow schema of loaded rows: the columns of the record, and then those of the value.

    `fields` has the fields that the value is decoded to, None for one column of bytes. Raises WrongOption if a field
    has the name of a column of the record.
    """
    own = [(prefix + name, kind) for name, kind in RECORD]
    if headers:
        own.append((prefix + "headers", HEADERS))
    taken = {name for name, _ in own} | {prefix + "topic", prefix + "date"}
    for field in fields or ():
        if field.name.lower() in {name.lower() for name in taken}:
            raise WrongOption(
                f"the values have a field {field.name!r}, which is also the name of a column of the record; "
                "--prefix kafka_ gives those names a prefix"
            )
    return pa.schema([*own, *(fields if fields is not None else [(prefix + "value", pa.binary())])])


def rejected_schema(prefix: str) -> pa.Schema:
    """Return the Arrow schema of rejected values: the columns of the record, the value in bytes, and the reason."""
    return pa.schema([*((prefix + name, kind) for name, kind in RECORD), ("value", pa.binary()), (REASON, pa.string())])


def with_null_timestamps(timestamps: pa.Array) -> pa.Array:
    """Return the timestamps, with null in place of Kafka's -1 for records that have no timestamp."""
    has_none = pc.equal(timestamps.cast(pa.int64()), NO_TIMESTAMP_US)
    if not pc.any(has_none).as_py():
        return timestamps
    return pc.if_else(has_none, pa.scalar(None, TIMESTAMP), timestamps)


def by_date(timestamps: pa.Array) -> Sequence[tuple[str, Any]]:
    """Return a pair (date, mask) for each date of the timestamps.

    The mask is a boolean array of the rows with that date, or None if all rows have the same date. Rows without a
    timestamp have the date NO_DATE.
    """
    days = timestamps.cast(pa.date32(), safe=False).cast(pa.int32())
    different = pc.unique(days).to_pylist()
    if len(different) == 1:
        return [(date_text(different[0]), None)]
    masks: dict[str, Any] = {}
    for day in different:
        mask = pc.is_null(days) if day is None else pc.fill_null(pc.equal(days, day), False)
        text = date_text(day)
        masks[text] = pc.or_(masks[text], mask) if text in masks else mask
    return list(masks.items())


def date_text(day: int | None) -> str:
    """Return a date, given as days since 1970-01-01, as text such as 2013-01-31.

    Return NO_DATE for None, and for dates outside the years 1 to 9999.
    """
    if day is None or not _FIRST_DAY <= day <= _LAST_DAY:
        return NO_DATE
    return str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())
