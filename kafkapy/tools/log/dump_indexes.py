"""Checks of .index and .timeindex files against the .log file beside them, as Kafka's `DumpLogSegments` does them."""

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
    offset_entries,
    time_entries,
)
from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.record.compression import NONE
from kafkapy.record.legacy import Entry
from kafkapy.tools.errors import ToolError
from kafkapy.tools.log.findings import Findings


def check_offset_index(path: Path, base_offset: int, findings: Findings) -> Iterator[OffsetEntry]:
    """Yields the entries; one whose offset is not the last offset of the batch at its position is a finding.

    It is damage only where a search would miss something: brokers before 0.11 index the first offset of an append,
    and one that copies several batches at once, as followers do, the last offset of them all.
    """
    with LogReader(_log_beside(path)) as log:
        for entry in offset_entries(path, base_offset):
            batch = log.header_at(entry.position)
            if batch is None or batch.last_offset != entry.offset:
                found = -1 if batch is None else batch.last_offset
                misses = batch is None or entry.offset < _first_known_offset(batch)
                findings.index_mismatch(str(path), entry.offset, found, misses=misses)
            yield entry


def _first_known_offset(header: Entry) -> int:
    """The base offset, as far as a header tells it: a wrapper of formats 0 and 1 does not."""
    if isinstance(header, BatchHeader):
        return header.base_offset
    return header.offset if header.codec == NONE else 0


def check_time_index(path: Path, base_offset: int, findings: Findings) -> Iterator[TimeEntry]:
    """Yields the entries. Each must name the last offset of a batch whose largest record timestamp is the entry's,
    and timestamps must grow."""
    index = path.with_suffix(".index")
    positions = list(offset_entries(index, base_offset)) if index.exists() else []
    offsets = [entry.offset for entry in positions]
    previous = -1
    with LogReader(_log_beside(path)) as log:
        for entry in time_entries(path, base_offset):
            slot = bisect_right(offsets, entry.offset) - 1
            start = positions[slot].position if slot >= 0 else 0
            if log.header_at(start) is None:  # the offset index is wrong, which its own dump tells
                start = 0
            batch = next((b for b in log.batches(start) if b.header.last_offset >= entry.offset), None)
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
    """The check that decides at start-up whether an index is rebuilt; raises ToolError where it fails."""
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
    size = path.stat().st_size
    if size % layout.size:
        raise ToolError(f"{path} is damaged: its {size} bytes are not whole entries of {layout.size} bytes each.")
    if size == 0:
        return None
    with open(path, "rb") as file:
        file.seek(size - layout.size)
        return layout.unpack(file.read(layout.size))


def _log_beside(path: Path) -> Path:
    log = path.with_suffix(".log")
    if not log.exists():
        raise ToolError(f"{path} cannot be checked: {log.name} is not beside it.")
    return log
