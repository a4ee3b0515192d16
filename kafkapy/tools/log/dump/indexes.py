"""Checks .index and .timeindex files against the .log file of their segment, as Kafka's `DumpLogSegments` does."""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from kafkapy._ext.batch import BatchHeader
from kafkapy.log.offline.index_files import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetEntry,
    TimeEntry,
    entries_in,
    offset_entries,
    time_entries,
)
from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.record.compression import NONE
from kafkapy.record.legacy import Entry
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.dump.findings import Findings


def check_offset_index(path: Path, base_offset: int, findings: Findings) -> Iterator[OffsetEntry]:
    """Yield the entries of an offset index. An entry whose offset is not the last offset of the batch at its position
    is added to `findings`.

    Such an entry counts as damage only if a search would miss records: brokers before 0.11 index the first offset of an
    append, and a broker that appends several batches at once, as followers do, indexes the last offset of all of them.
    """
    with LogReader(_log_of(path)) as log:
        for entry in offset_entries(path, base_offset):
            batch = _header_at(log, entry.position)
            if batch is None or batch.last_offset != entry.offset:
                found = -1 if batch is None else batch.last_offset
                misses = batch is None or entry.offset < _first_known_offset(batch)
                findings.index_mismatch(str(path), entry.offset, found, misses=misses)
            yield entry


def _header_at(log: LogReader, position: int) -> Entry | None:
    """Return the header of the batch at `position`, or None. A batch that a broker has appended since the log was
    opened is found too."""
    header, size = log.header_at(position), log.size
    return log.header_at(position) if header is None and log.refresh() > size else header


def _batch_with(log: LogReader, start: int, offset: int) -> StoredBatch | None:
    """Return the first batch from position `start` on whose last offset is at least `offset`, or None. A batch that was
    appended after the log was opened is found too."""
    batch, size = _search(log, start, offset), log.size
    return _search(log, start, offset) if batch is None and log.refresh() > size else batch


def _search(log: LogReader, start: int, offset: int) -> StoredBatch | None:
    return next((batch for batch in log.batches(start) if batch.header.last_offset >= offset), None)


def _first_known_offset(header: Entry) -> int:
    """Return the base offset of an entry. For a compressed wrapper of formats 0 and 1 return 0, because its header has
    only the last offset."""
    if isinstance(header, BatchHeader):
        return header.base_offset
    return header.offset if header.codec == NONE else 0


def check_time_index(path: Path, base_offset: int, findings: Findings) -> Iterator[TimeEntry]:
    """Yield the entries of a time index, and add wrong entries to `findings`. An entry must have the last offset of a
    batch and the largest record timestamp of that batch, and timestamps must ascend."""
    index = path.with_suffix(".index")
    positions = list(offset_entries(index, base_offset)) if index.exists() else []
    offsets = [entry.offset for entry in positions]
    previous = -1
    with LogReader(_log_of(path)) as log:
        for entry in time_entries(path, base_offset):
            slot = bisect_right(offsets, entry.offset) - 1
            start = positions[slot].position if slot >= 0 else 0
            if log.header_at(start) is None:  # the offset index is wrong; its own dump reports that
                start = 0
            batch = _batch_with(log, start, entry.offset)
            if batch is None or batch.header.last_offset != entry.offset:
                found = -1 if batch is None else batch.header.last_offset
                findings.offset_not_found(str(path), entry.offset, found, misses=batch is None)
            else:
                latest = max((record.timestamp for record in batch.records()), default=-1)
                if latest != entry.timestamp:
                    findings.timestamp_mismatch(str(path), entry.timestamp, latest)
                if previous >= entry.timestamp:
                    findings.timestamp_out_of_order(str(path), entry.timestamp, previous)
            yield entry
            previous = entry.timestamp


def sanity_of_offset_index(path: Path, base_offset: int) -> None:
    """Raise ToolError if the offset index fails the check by which a starting broker decides to rebuild it."""
    last = _last_entry(path, OFFSET_ENTRY)
    if last is not None and last[0] < 0:
        raise ToolError(f"{path} is damaged: its last offset {base_offset + last[0]} is below {base_offset}.")


def sanity_of_time_index(path: Path, base_offset: int) -> None:
    last = _last_entry(path, TIME_ENTRY)
    if last is None:
        return
    with open(path, "rb") as file:
        (first_timestamp, _) = TIME_ENTRY.unpack(file.read(TIME_ENTRY.size))
    if last[0] < first_timestamp:
        raise ToolError(f"{path} is damaged: its last timestamp {last[0]} is before its first one {first_timestamp}.")
    if last[1] < 0:
        raise ToolError(f"{path} is damaged: its last offset {base_offset + last[1]} is below {base_offset}.")


def _last_entry(path: Path, layout: Struct) -> tuple[int, ...] | None:
    """Return the fields of the last entry in an index file, without preallocated space; None if there is no entry.
    Raises ToolError if the size is not a multiple of the entry size."""
    size = path.stat().st_size
    if size % layout.size:
        raise ToolError(f"{path} is damaged: its {size} bytes are not whole entries of {layout.size} bytes each.")
    with open(path, "rb") as file:
        count = entries_in(file.fileno(), layout.size)
        if not count:
            return None
        file.seek((count - 1) * layout.size)
        return layout.unpack(file.read(layout.size))


def _log_of(path: Path) -> Path:
    log = path.with_suffix(".log")
    if not log.exists():
        raise ToolError(f"{path} cannot be checked: {log.name} is not in the same directory.")
    return log
