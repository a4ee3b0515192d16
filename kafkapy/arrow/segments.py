"""Reads segment files of all message formats since Kafka 0.7 as Arrow record batches, without a broker.

    for split in splits:                       # from kafkapy.log.offline.splits; splits can be read in parallel
        for batch in read_split(split): ...

    read_segments(["/data/kafka"], topics=["orders"]).read_all()

An incomplete batch at the end of the last segment, where a broker may be writing, ends the records. Other damage is an
error that names the file and the position.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from kafkapy.arrow.rows import MAX_BYTES, MAX_ROWS, DamagedRows, RowBuilder, schema_of
from kafkapy.log.offline.bounds import EVERYTHING, Bounds, Planner
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.selection import selected
from kafkapy.log.offline.sets_07 import sets_of_07
from kafkapy.log.offline.splits import Split, found_again, is_there
from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.record.blocks import SegmentBlocks
from kafkapy.record.columns import DamagedBatch
from kafkapy.record.kafka07 import CorruptMessage

OnDamage = Callable[[str], object]


def read_segments(
    paths: Iterable[str | os.PathLike[str]],
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    bounds: Bounds = EVERYTHING,
    columns: Sequence[str] | None = None,
    include_headers: bool = True,
    committed: bool = False,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
) -> pa.RecordBatchReader:
    """Return a reader of the records in log directories, partition directories or segment files.

    Partitions are read one after the other. The end offsets are determined during this call. With `committed`, aborted
    transactions are skipped, and reading stops at the last stable offset.

    Raises OfflineError for damaged or invalid files, here or during reading; ValueError for an unknown column; OSError.
    """
    schema = schema_of(columns, include_headers)
    planner = Planner(bounds, committed=committed)
    splits = [split for place in selected(map(Path, paths), topics, partitions) for split in planner.splits(place)]
    batches = (
        batch
        for split in splits
        for batch in read_split(
            split, columns=columns, include_headers=include_headers, max_rows=max_rows, max_bytes=max_bytes
        )
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def read_split(
    split: Split,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = True,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    skipped: OnDamage | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split (a range of one segment file) in order, as Arrow record batches.

    If the file is damaged, `skipped` is called with a sentence about the damage, and the rest of the split is skipped.
    Without `skipped`, damage raises OfflineError. OfflineError is also raised for a file that cannot be read or is
    missing.
    """
    for piece in _present(split):
        rows = RowBuilder(
            piece.topic,
            piece.partition,
            columns=columns,
            include_headers=include_headers,
            start=piece.start,
            end=piece.end,
            max_rows=max_rows,
            max_bytes=max_bytes,
            aborted=[(producer, first) for producer, first, _ in piece.aborted],
        )
        try:
            yield from (_rows_07 if piece.kafka_07 else _rows)(piece, rows)
        except OfflineError as error:
            if skipped is None:
                raise
            skipped(str(error))
        except OSError as error:
            raise _unreadable(piece, error) from error
        if (rest := rows.finish()) is not None:
            yield rest


def _present(split: Split) -> Iterable[Split]:
    """Return the split, or if the log cleaner has replaced its file, splits of the new files with the same offsets.

    Raises OfflineError if the directory is missing or the file cannot be read.
    """
    try:
        with LogReader(split.path) as log:
            if is_there(split, log):
                return [split]
        return found_again(split)
    except FileNotFoundError as error:
        if not split.path.parent.is_dir():
            raise _unreadable(split, error) from error
        return found_again(split)
    except OSError as error:
        raise _unreadable(split, error) from error


def _rows(split: Split, rows: RowBuilder) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split with message formats 0 to 2 as Arrow record batches.

    Raise OfflineError for damage.
    """
    with SegmentBlocks(split.path, split.position, end=split.stop) as blocks:
        try:
            for block in blocks:
                yield from rows.feed(block)
                blocks.used(rows.consumed)
                if rows.past_end:
                    behind = f"has an offset after {split.end - 1}, the last one before the next segment or split"
                    raise _damage(split, blocks.position + rows.consumed, None, behind)
        except DamagedRows as error:
            raise _damage(split, blocks.position + rows.consumed, error.offset, error.reason) from None
        except DamagedBatch as error:
            raise _damage(split, blocks.position + error.position, None, error.reason) from None
        if blocks.position < split.stop:
            raise _damage(split, blocks.position, None, "is incomplete")


def _rows_07(split: Split, rows: RowBuilder) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split written by Kafka 0.7 as Arrow record batches. Raise OfflineError for damage."""
    end = 0
    try:
        for group in sets_of_07(split.path, split.base_offset):
            yield from rows.feed(group.data)
            end = group.end
    except CorruptMessage as error:
        raise _damage(split, error.position, split.base_offset + error.position, f"has {error}", "message") from None
    if end < split.stop and split.size is not None:
        raise _damage(split, end, split.base_offset + end, "is incomplete", "message")


def _damage(split: Split, position: int, offset: int | None, reason: str, what: str = "batch") -> OfflineError:
    """Return the OfflineError for damage in a split's file.

    `position` is in bytes, `offset` is the damaged batch's offset if known, and `reason` continues the text "the batch
    at position N ...".
    """
    at = split.name if offset is None else f"offset {offset} of {split.name}"
    return OfflineError(f"{split.path} is damaged at {at}: the {what} at position {position} {reason}.")


def _unreadable(split: Split, error: OSError) -> OfflineError:
    """Return the OfflineError for a split whose file cannot be opened or read."""
    return OfflineError(
        f"{split.path} ({split.name}) could not be read on {socket.gethostname()}: {error.strerror or error}. "
        "A process that reads a split needs its files at the same path, and the permission to read them."
    )
