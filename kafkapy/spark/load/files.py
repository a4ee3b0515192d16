"""The Parquet files that a task writes: one or more for each date of a topic."""

import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkapy.spark.load.durable import sync_files

GROUP_BYTES = 32 << 20  # size of a row group in memory
MOST_WAITING = 256 << 20  # the most bytes of rows in memory, over all dates
MOST_OPEN = 256  # the most files that are open at the same time
MOST_ROWS = 1 << 20  # the most rows of a row group


@dataclass(frozen=True)
class Span:
    """The rows of one partition in a file: the first and last offset, and the number of rows."""

    partition: int
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class StagedFile:
    """A complete Parquet file in the staging directory, which is not yet part of the loaded directory.

    `rows` and `bytes` are the number of rows and the size of the file; `spans` describes the rows of each partition.
    """

    path: str
    topic: str
    date: str
    spans: tuple[Span, ...]
    rows: int
    bytes: int

    def document(self) -> dict[str, Any]:
        """Return the description of the file as a JSON object, which `of` converts back."""
        return asdict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> "StagedFile":
        """Return the StagedFile that a JSON object from `document` describes."""
        return cls(**{**document, "spans": tuple(Span(**span) for span in document["spans"])})


def final_name(spans: tuple[Span, ...]) -> str:
    """Return the name for a file in the loaded directory, which is unique there.

    If all rows of the file are of one partition, the name has the partition and the first and last offset.
    """
    if len(spans) == 1:
        return f"{spans[0].partition:05d}-{spans[0].first:020d}-{spans[0].last:020d}.parquet"
    return f"merged-{uuid.uuid4().hex}.parquet"


@dataclass(frozen=True)
class Extent:
    """The lowest and highest partition, and the lowest and highest offset, of the rows in a file."""

    partitions: tuple[int, int]
    offsets: tuple[int, int]


def extent(path: Path, prefix: str) -> Extent:
    """Return the lowest and highest partition and offset in a file, from the statistics in the file's metadata."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names  # the record's columns come first and are not nested
        bounds = []
        for column in (names.index(prefix + "partition"), names.index(prefix + "offset")):
            found = [file.metadata.row_group(group).column(column).statistics for group in range(file.num_row_groups)]
            bounds.append((min(one.min for one in found), max(one.max for one in found)))
    return Extent(*bounds)


class FileWriter:
    """Writes a Parquet file with a temporary name.

    The rows of each partition have to be added in the order of offsets.
    """

    def __init__(self, directory: Path, schema: pa.Schema, prefix: str) -> None:
        self.path = directory / f"{uuid.uuid4().hex}.parquet"
        self._columns = (prefix + "partition", prefix + "offset")
        self._spans: dict[int, Span] = {}
        self._sink = pa.OSFile(os.fspath(self.path), "wb")
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", compression_level=1)

    @property
    def bytes(self) -> int:
        """Return the number of bytes written so far."""
        return int(self._sink.tell())

    def add(self, rows: pa.Table) -> None:
        """Write rows to the file, as one or more row groups."""
        partitions, offsets = (rows[name] for name in self._columns)
        for partition in pc.unique(partitions).to_pylist():
            mine = offsets.filter(pc.equal(partitions, partition))
            had = self._spans.get(partition)
            first = pc.min(mine).as_py() if had is None else had.first
            count = len(mine) + (0 if had is None else had.rows)
            self._spans[partition] = Span(partition, first, pc.max(mine).as_py(), count)
        self._writer.write_table(rows, row_group_size=MOST_ROWS)

    def close(self, topic: str, date: str) -> StagedFile:
        """Close the file, and return a StagedFile that describes it.

        The file is not synced; see durable.sync_files.
        """
        spans = tuple(sorted(self._spans.values(), key=lambda span: span.partition))
        self._writer.close()
        size = self.bytes
        self._sink.close()
        return StagedFile(str(self.path), topic, date, spans, sum(span.rows for span in spans), size)


@dataclass
class _Date:
    """The rows of one date that wait to be written, and the date's open file."""

    waiting: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    writer: FileWriter | None = None


class DatedFiles:
    """Writes the rows of one topic to files, one or more for each date, after they have filled a row group in memory.

    Memory is limited to MOST_WAITING bytes of rows, and what Parquet needs for MOST_OPEN files.
    """

    def __init__(self, directory: Path, topic: str, schema: pa.Schema, prefix: str, file_bytes: int) -> None:
        self._directory, self._topic, self._schema, self._prefix = directory, topic, schema, prefix
        self._file_bytes = file_bytes
        self._dates: dict[str, _Date] = {}
        self._waiting = 0
        self.done: list[StagedFile] = []

    def add(self, date: str, rows: pa.Table) -> None:
        """Add rows of a date.

        Rows are written when there are enough for a row group, or when too much memory is used.
        """
        one = self._dates.setdefault(date, _Date())
        one.waiting.append(rows)
        one.bytes += rows.nbytes
        self._waiting += rows.nbytes
        if one.bytes >= GROUP_BYTES:
            self._write(date)
        while self._waiting > MOST_WAITING:
            self._write(max(self._dates, key=lambda name: self._dates[name].bytes))

    def close(self) -> list[StagedFile]:
        """Write the remaining rows, sync all files, and return the descriptions of the files."""
        for date in list(self._dates):
            self._write(date)
            self._end(date)
        sync_files(Path(file.path) for file in self.done)
        return self.done

    def _write(self, date: str) -> None:
        """Write the waiting rows of a date to its file. Close the file if it is large enough."""
        one = self._dates[date]
        if one.waiting:
            if one.writer is None:
                self._make_room()
                one.writer = FileWriter(self._directory, self._schema, self._prefix)
            one.writer.add(pa.concat_tables(one.waiting))
            self._waiting -= one.bytes
            one.waiting, one.bytes = [], 0
            if one.writer.bytes >= self._file_bytes:
                self._end(date)

    def _end(self, date: str) -> None:
        """Close the open file of a date, if there is one."""
        one = self._dates[date]
        if one.writer is not None:
            self.done.append(one.writer.close(self._topic, date))
            one.writer = None

    def _make_room(self) -> None:
        """Close one of the open files if MOST_OPEN files are open, so that another file can be opened."""
        opened = [name for name, one in self._dates.items() if one.writer is not None]
        if len(opened) >= MOST_OPEN:
            self._end(opened[0])
