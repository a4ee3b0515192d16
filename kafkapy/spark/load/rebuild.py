"""Builds a new version of a directory: merges small files, removes the rows of some offsets, and adds files.

Unchanged files become hard links. The old directory is only read, so a task that fails has changed nothing.
"""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkapy.spark.load.durable import sync_files
from kafkapy.spark.load.files import FileWriter, StagedFile, extent, final_name
from kafkapy.spark.load.intervals import Interval, overlaps

MERGED_ROWS = 1 << 17  # the number of rows that are read at once


def rebuild(
    old: Path,
    room: Path,
    *,
    prefix: str,
    merge: Sequence[str] = (),
    without: Mapping[int, Sequence[Interval]] | None = None,
    add: Iterable[StagedFile] = (),
) -> Path:
    """Build a new version of the directory `old` in the staging directory `room`. Return the path of the new version.

    Args:
        prefix: The prefix of the names of the record's columns.
        merge: The names of the files to merge into one.
        without: The offsets, by partition, whose rows are removed.
        add: The files to add.
    """
    new_directory = room / f"directory-{uuid.uuid4().hex}"
    new_directory.mkdir()
    without = without or {}
    names = sorted(name for name in os.listdir(old) if name.endswith(".parquet")) if old.exists() else []
    if merge:
        _write(_in_order([old / name for name in merge], prefix), new_directory, prefix, {})
    for name in names:
        if name in merge:
            continue
        if has_rows_of(old / name, prefix, without):
            _write([old / name], new_directory, prefix, without)
        else:
            os.link(old / name, new_directory / name)
    for file in add:
        os.link(file.path, new_directory / final_name(file.spans))
    return new_directory


def has_rows_of(path: Path, prefix: str, without: Mapping[int, Sequence[Interval]]) -> bool:
    """Return True if a file may have rows of the offsets in `without` (offsets by partition), as its statistics say."""
    if not without:
        return False
    found = extent(path, prefix)
    first, last = found.partitions
    return any(first <= partition <= last and overlaps(*found.offsets, pairs) for partition, pairs in without.items())


def _in_order(paths: Iterable[Path], prefix: str) -> list[Path]:
    """Return the paths of files in the order of the partitions and offsets of their rows, for merging the files."""
    found = {path: extent(path, prefix) for path in paths}
    return sorted(found, key=lambda path: (found[path].partitions, found[path].offsets))


def _write(paths: Sequence[Path], new_directory: Path, prefix: str, without: Mapping[int, Sequence[Interval]]) -> None:
    """Write the rows of files, except those of the offsets in `without`, to one new file in `new_directory`.

    No file is written if no row is left.
    """
    writer: FileWriter | None = None
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(MERGED_ROWS):
                rows = _kept(pa.Table.from_batches([batch]), prefix, without)
                if not len(rows):
                    continue
                if writer is None:
                    writer = FileWriter(new_directory, rows.schema.remove_metadata(), prefix)
                writer.add(rows)
    if writer is not None:
        done = writer.close("", "")
        sync_files([Path(done.path)])
        os.rename(done.path, new_directory / final_name(done.spans))


def _kept(rows: pa.Table, prefix: str, without: Mapping[int, Sequence[Interval]]) -> pa.Table:
    """Return the rows whose offsets are not in `without` (offsets by partition)."""
    partitions, offsets = rows[prefix + "partition"], rows[prefix + "offset"]
    for partition, pairs in without.items():
        for start, end in pairs:
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            keep = pc.invert(pc.and_(pc.equal(partitions, partition), inside))
            rows = rows.filter(keep)
            partitions, offsets = rows[prefix + "partition"], rows[prefix + "offset"]
    return rows
