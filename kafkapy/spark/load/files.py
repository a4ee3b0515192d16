"""Parquet files that a task writes: of one topic, one or more a date."""

import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkapy.spark.load.durable import sync_files

GROUP_BYTES = 32 << 20  # in memory, of a row group
MOST_WAITING = 256 << 20  # in memory, over all dates
MOST_OPEN = 256  # files at a time
MOST_ROWS = 1 << 20  # in a row group


@dataclass(frozen=True)
class Span:
    """Rows of a partition in a file: their number, and the first and the last offset."""

    partition: int
    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class StagedFile:
    """A whole file that nobody knows yet."""

    path: str
    topic: str
    date: str
    spans: tuple[Span, ...]
    rows: int
    bytes: int

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> "StagedFile":
        return cls(**{**document, "spans": tuple(Span(**span) for span in document["spans"])})


def final_name(spans: tuple[Span, ...]) -> str:
    """Of a file of one partition what is in it; no two in a directory are the same, for no two have the same rows."""
    if len(spans) == 1:
        return f"{spans[0].partition:05d}-{spans[0].first:020d}-{spans[0].last:020d}.parquet"
    return f"merged-{uuid.uuid4().hex}.parquet"


@dataclass(frozen=True)
class Extent:
    """Between which partitions and offsets the rows of a file lie; both ends are included."""

    partitions: tuple[int, int]
    offsets: tuple[int, int]


def extent(path: Path, prefix: str) -> Extent:
    """From the statistics of a file of ours."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names  # the record's own columns stand first, and none of them has parts
        bounds = []
        for column in (names.index(prefix + "partition"), names.index(prefix + "offset")):
            found = [file.metadata.row_group(group).column(column).statistics for group in range(file.num_row_groups)]
            bounds.append((min(one.min for one in found), max(one.max for one in found)))
    return Extent(*bounds)


class FileWriter:
    """One Parquet file under a temporary name. `add` rows of any partition; offsets of each must go up."""

    def __init__(self, directory: Path, schema: pa.Schema, prefix: str) -> None:
        self.path = directory / f"{uuid.uuid4().hex}.parquet"
        self._columns = (prefix + "partition", prefix + "offset")
        self._spans: dict[int, Span] = {}
        self._sink = pa.OSFile(os.fspath(self.path), "wb")
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", compression_level=1)

    @property
    def bytes(self) -> int:
        return int(self._sink.tell())

    def add(self, rows: pa.Table) -> None:
        """Writes a row group, or several."""
        partitions, offsets = (rows[name] for name in self._columns)
        for partition in pc.unique(partitions).to_pylist():
            mine = offsets.filter(pc.equal(partitions, partition))
            had = self._spans.get(partition)
            first = pc.min(mine).as_py() if had is None else had.first
            count = len(mine) + (0 if had is None else had.rows)
            self._spans[partition] = Span(partition, first, pc.max(mine).as_py(), count)
        self._writer.write_table(rows, row_group_size=MOST_ROWS)

    def close(self, topic: str, date: str) -> StagedFile:
        """Ends the file; it is to be synced, see durable.sync_files."""
        spans = tuple(sorted(self._spans.values(), key=lambda span: span.partition))
        self._writer.close()
        size = self.bytes
        self._sink.close()
        return StagedFile(str(self.path), topic, date, spans, sum(span.rows for span in spans), size)


@dataclass
class _Date:
    waiting: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    writer: FileWriter | None = None


class DatedFiles:
    """The files of one topic, a date each; rows wait until a row group is worth it.

    Memory: MOST_WAITING of rows, and what Parquet needs for MOST_OPEN files.
    """

    def __init__(self, directory: Path, topic: str, schema: pa.Schema, prefix: str, file_bytes: int) -> None:
        self._directory, self._topic, self._schema, self._prefix = directory, topic, schema, prefix
        self._file_bytes = file_bytes
        self._dates: dict[str, _Date] = {}
        self._waiting = 0
        self.done: list[StagedFile] = []

    def add(self, date: str, rows: pa.Table) -> None:
        one = self._dates.setdefault(date, _Date())
        one.waiting.append(rows)
        one.bytes += rows.nbytes
        self._waiting += rows.nbytes
        if one.bytes >= GROUP_BYTES:
            self._write(date)
        while self._waiting > MOST_WAITING:
            self._write(max(self._dates, key=lambda name: self._dates[name].bytes))

    def close(self) -> list[StagedFile]:
        """All files, whole and synced."""
        for date in list(self._dates):
            self._write(date)
            self._end(date)
        sync_files(Path(file.path) for file in self.done)
        return self.done

    def _write(self, date: str) -> None:
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
        one = self._dates[date]
        if one.writer is not None:
            self.done.append(one.writer.close(self._topic, date))
            one.writer = None

    def _make_room(self) -> None:
        opened = [name for name, one in self._dates.items() if one.writer is not None]
        if len(opened) >= MOST_OPEN:
            self._end(opened[0])
