"""The outputs of `log export`: JSON lines, or a Parquet file.

A Parquet file has one row per record. Its columns are `topic` (a string, null if no topic is known) and the columns of
`kafkapy.record.arrow.schema_of`. Timestamps are milliseconds in UTC, null for a record without a timestamp; keys,
values and headers are as stored; producer fields and sequences are -1 for records without a producer id.
"""

import json
import struct
from contextlib import suppress
from typing import Any, BinaryIO, Protocol

from kafkapy._ext.json_lines import json_lines
from kafkapy.extras import how_to_install
from kafkapy.log.offline.places import Place
from kafkapy.record.columns import COLUMNS, Columns
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.output import utf_8

TOPIC = "topic"
JSON_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
PARQUET_COLUMNS = tuple(name for name in COLUMNS if name != "attributes")
# The largest columns, and the size of a Parquet row group: readers want few and large ones, but the writer needs about
# three times the memory of a row group.
JSON_BYTES, JSON_ROWS = 4 << 20, 1 << 15
_SELDOM_AGAIN = {"offset", "timestamp", "value", "headers", "sequence"}
GROUP_BYTES, GROUP_ROWS = 16 << 20, 1 << 17
# Small columns hold far more memory than they use: after this many they are copied into one.
MOST_WAITING = 64


class Sink(Protocol):
    """An output for columns of records. `write` adds the records of columns, `close` completes the output, and
    `give_up` ends it after an error."""

    rows: int

    def write(self, columns: Columns, place: Place) -> None: ...

    def close(self) -> None: ...

    def give_up(self) -> None: ...


class JsonSink:
    """A Sink that writes records as lines of JSON, as `kafkapy consume --json` prints them."""

    def __init__(self, out: BinaryIO) -> None:
        self.rows = 0
        self._out = out

    def write(self, columns: Columns, place: Place) -> None:
        """Write the records as lines. The columns must include JSON_COLUMNS."""
        where = {"topic": place.topic, "partition": place.partition}
        prefix = json.dumps(where, ensure_ascii=False, separators=(",", ":"))[:-1] + ',"offset":'
        self._out.write(json_lines(columns, utf_8(prefix)))
        self.rows += columns.rows

    def close(self) -> None:
        self._out.flush()

    def give_up(self) -> None:
        """Do nothing: the lines written so far stay."""


class ParquetSink:
    """A Sink that writes a Parquet file with row groups of about GROUP_BYTES, compressed with zstd."""

    def __init__(self, out: BinaryIO, columns: tuple[str, ...]) -> None:
        """Raise CallError if pyarrow is missing. `columns` may have `topic` in addition to those of COLUMNS."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq

            from kafkapy.record.arrow import record_batch, schema_of
        except ImportError as error:
            raise CallError(
                f"--parquet needs pyarrow, which is not installed ({error}): {how_to_install('parquet')}"
            ) from error
        self.rows = 0
        self._pa = pa
        self._record_batch = record_batch
        self._own = schema_of(columns)
        topic = [pa.field(TOPIC, pa.dictionary(pa.int32(), pa.string()))] if TOPIC in columns else []
        self._schema = pa.schema([*topic, *self._own])
        self._waiting: list[Any] = []
        self._waiting_bytes = self._waiting_rows = 0
        # Dictionaries only for columns with repeated values; statistics only for columns that queries filter by.
        again = [name for name in self._schema.names if name not in _SELDOM_AGAIN]
        sought = [name for name in self._schema.names if name not in ("key", "value", "headers")]
        self._writer = pq.ParquetWriter(
            out, self._schema, compression="zstd", use_dictionary=again, write_statistics=sought
        )

    def write(self, columns: Columns, place: Place) -> None:
        batch = self._record_batch(columns, self._own)
        arrays = list(batch.columns)
        if len(self._schema) > len(arrays):
            arrays.insert(0, self._topic(place.topic, columns.rows))
        self._waiting.append(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._waiting_bytes += columns.size
        self._waiting_rows += columns.rows
        self.rows += columns.rows
        # Small partitions share a row group.
        if 2 * self._waiting_bytes >= GROUP_BYTES or 2 * self._waiting_rows >= GROUP_ROWS:
            self._flush()
        elif len(self._waiting) >= MOST_WAITING:
            self._waiting = self._table().combine_chunks().to_batches()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def give_up(self) -> None:
        """Close the writer while the file is still open, because the writer's destructor would write to the closed
        file."""
        with suppress(OSError, ValueError):
            self._writer.close()

    def _topic(self, topic: str | None, rows: int) -> Any:
        pa = self._pa
        # Built from buffers: to convert Python values pyarrow would import pandas, if it is installed.
        name = utf_8(topic or "")
        ends = struct.pack("=ii", 0, len(name))
        names = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(name)])
        zeros = pa.py_buffer(bytes(4 * rows))
        nulls = rows if topic is None else 0
        indices = pa.Array.from_buffers(pa.int32(), rows, [zeros if nulls else None, zeros], nulls)
        return pa.DictionaryArray.from_arrays(indices, names)

    def _table(self) -> Any:
        return self._pa.Table.from_batches(self._waiting, self._schema).unify_dictionaries()

    def _flush(self) -> None:
        if self._waiting:
            table = self._table()
            self._waiting = []
            self._waiting_bytes = self._waiting_rows = 0
            self._writer.write_table(table, row_group_size=GROUP_ROWS)
