"""Where exported records go: JSON lines, or a Parquet file.

Parquet: one row a record; `topic` (a string, null where no topic is known) and the columns of
`kafkapy.record.arrow.schema_of`. Timestamps are milliseconds in UTC, null where a record has none; keys, values and
headers are as stored; producer fields and sequences are -1 where there are none.
"""

import json
import struct
from contextlib import suppress
from typing import Any, BinaryIO, Protocol

from kafkapy._ext.json_lines import json_lines
from kafkapy.log.offline.places import Place
from kafkapy.record.columns import COLUMNS, Columns
from kafkapy.tools.errors import CallError
from kafkapy.tools.output import utf_8

TOPIC = "topic"
JSON_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
PARQUET_COLUMNS = tuple(name for name in COLUMNS if name != "attributes")
# Bounds of the columns at a time. A row group of Parquet has as much; readers want few and large ones, and the writer
# holds about three times one in memory.
JSON_BYTES, JSON_ROWS = 4 << 20, 1 << 15
_SELDOM_AGAIN = {"offset", "timestamp", "value", "headers", "sequence"}
GROUP_BYTES, GROUP_ROWS = 16 << 20, 1 << 17
# Columns of a few records have far more memory than they use: so many of them are copied together.
MOST_WAITING = 64


class Sink(Protocol):
    """Takes columns, and makes what it has of them by `close`; `give_up` instead, where the rest cannot be had."""

    rows: int

    def write(self, columns: Columns, place: Place) -> None: ...

    def close(self) -> None: ...

    def give_up(self) -> None: ...


class JsonSink:
    """Lines as `kafkapy consume --json` prints them."""

    def __init__(self, out: BinaryIO) -> None:
        self.rows = 0
        self._out = out

    def write(self, columns: Columns, place: Place) -> None:
        """Needs JSON_COLUMNS."""
        where = {"topic": place.topic, "partition": place.partition}
        prefix = json.dumps(where, ensure_ascii=False, separators=(",", ":"))[:-1] + ',"offset":'
        self._out.write(json_lines(columns, utf_8(prefix)))
        self.rows += columns.rows

    def close(self) -> None:
        self._out.flush()

    def give_up(self) -> None:
        """What was printed is printed."""


class ParquetSink:
    """A Parquet file with row groups of about GROUP_BYTES, compressed with zstd."""

    def __init__(self, out: BinaryIO, columns: tuple[str, ...]) -> None:
        """`columns` may have `topic` beside those of COLUMNS. Raises CallError where pyarrow is missing."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq

            from kafkapy.record.arrow import record_batch, schema_of
        except ImportError as error:
            raise CallError(
                f"--parquet needs pyarrow, which is not there ({error}): pip install 'kafkapy[parquet]'"
            ) from error
        self.rows = 0
        self._pa = pa
        self._record_batch = record_batch
        self._own = schema_of(columns)
        topic = [pa.field(TOPIC, pa.dictionary(pa.int32(), pa.string()))] if TOPIC in columns else []
        self._schema = pa.schema([*topic, *self._own])
        self._waiting: list[Any] = []
        self._waiting_bytes = self._waiting_rows = 0
        # A dictionary is worth its memory where the same comes again; statistics where one would search by them.
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
        """Ends the writer while there is a file: at its own end it would write to one that is closed."""
        with suppress(OSError, ValueError):
            self._writer.close()

    def _topic(self, topic: str | None, rows: int) -> Any:
        pa = self._pa
        # From buffers throughout: pyarrow imports pandas, where it is, to look at a Python value.
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
