"""Rebuild a log's producer state from the last usable snapshot and the batches after the snapshot.

Source: Kafka's UnifiedLog.rebuildProducerState and ProducerStateManager.truncateAndReload.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from kafkapy._ext.batch import read_header
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.producers.producer_snapshots import SnapshotError, SnapshotFiles
from kafkapy.log.producers.producer_state import NO_OFFSET, BatchNote, CompletedTxn, ProducerEntry, ProducerState
from kafkapy.log.segments.segment import WITHOUT_ENTRIES, Segment
from kafkapy.log.segments.segment_list import SegmentList
from kafkapy.record.control import ABORT, COMMIT, control_record_of

_BATCH = Struct("=qqqqqiiihh")  # ProducerBatch of ext/segment_scan.pxd
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


def take_snapshot(state: ProducerState, snapshots: SnapshotFiles, *, sync: bool = True) -> str | None:
    """Write a producer snapshot at the state's end offset and return its path. Raises OSError.

    Returns None, and writes nothing, if there is a snapshot at this offset or a later one. Without `sync`, the caller
    must have the next flush sync the file.
    """
    if state.end_offset <= snapshots.taken_at:
        return None
    path = snapshots.write(state.end_offset, state.producers.values(), sync=sync)
    snapshots.taken_at = state.end_offset
    return path


def rebuild_producer_state(
    state: ProducerState,
    snapshots: SnapshotFiles,
    segments: SegmentList,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    clean: bool = False,
    take: Callable[[ProducerState, SnapshotFiles], object] = take_snapshot,
) -> None:
    """Change `state` to the producer state of the log at `end_offset`, and write a snapshot there, with `take`. Raises
    OSError.

    If there is no snapshot after a clean shutdown, the log had no producers to remember. Then the log is not scanned,
    and empty snapshots are written at the last segments, so that a later truncation does not scan the log either.
    """
    last_bases = segments.base_offsets[-2:]
    if clean and snapshots.latest is None:
        for offset in (*last_bases, end_offset):
            state.end_offset = offset
            take(state, snapshots)
        return
    nothing_known = state.is_empty and state.end_offset >= end_offset
    _reload(state, snapshots, log_start_offset, end_offset, now_ms)
    if end_offset > state.end_offset and not nothing_known:
        for segment in segments.between(state.end_offset, end_offset):
            state.end_offset = max(segment.base_offset, state.end_offset, log_start_offset)
            if segment.base_offset in (*last_bases, end_offset):
                take(state, snapshots)
            _replay_segment(state, segment, state.end_offset, end_offset)
    state.end_offset = end_offset
    take(state, snapshots)


def _reload(
    state: ProducerState, snapshots: SnapshotFiles, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    snapshots.delete_outside(log_start_offset, end_offset)
    if state.end_offset == end_offset:
        state.log_start_moved(log_start_offset)
        latest = snapshots.latest
        snapshots.taken_at = log_start_offset if latest is None else latest
        return
    state.clear(log_start_offset)
    snapshots.taken_at = log_start_offset
    while (offset := snapshots.latest) is not None:
        try:
            state.load(snapshots.read(offset), offset, now_ms)
        except SnapshotError as reason:
            snapshots.report_damage(f"{reason}: it is deleted and an older one taken")
            snapshots.delete(offset)
            continue
        snapshots.taken_at = offset
        return


def _replay_segment(state: ProducerState, segment: Segment, start: int, end_offset: int) -> None:
    """Apply the batches of the segment with start <= offset < end_offset to the producer state."""
    begin = segment.locate(start, segment.size)
    if begin is None:
        return
    end = segment.locate(end_offset, segment.size)
    stop = end[0] if end is not None else segment.size
    found = segment.files.scan(segment.handle(), begin[0], stop, segment.base_offset, WITHOUT_ENTRIES, False)
    replay(state, reader_of(segment), found.producers)


def reader_of(segment: Segment) -> Callable[[int, int], bytes]:
    """Return a function read(size, position) that returns `size` bytes of the segment's file from `position` on."""
    return lambda size, position: segment.files.pread(segment.handle(), size, position)


def replay(state: ProducerState, read: Callable[[int, int], bytes], collected: bytes) -> list[AbortedTxn]:
    """Apply the batches of producers that a scan of batches has collected to the producer state. Return the aborted
    transactions that end in these batches, as the transaction index has them.

    Nothing is refused, as the batches are in this log or in the leader's log. `collected` is the `producers` of the
    scan's result, and `read(size, position)` returns the bytes of a batch.
    """
    aborted = []
    for base, last, producer_id, timestamp, position, _, last_sequence, size, epoch, flags in _BATCH.iter_unpack(
        collected
    ):
        entry = state.producers.get(producer_id) or ProducerEntry(producer_id)
        if not flags & _CONTROL:
            entry.add(epoch, BatchNote(last_sequence, last, last - base, timestamp))
            if flags & _TRANSACTIONAL and entry.txn_first_offset < 0:
                entry.txn_first_offset = base
            state.put(entry)
            continue
        data = read(size, position)
        marker = control_record_of(data, read_header(data))
        if marker is None or marker.type not in (ABORT, COMMIT) or marker.coordinator_epoch is None:
            continue
        first = entry.end_transaction(epoch, marker.coordinator_epoch, timestamp)
        state.put(entry)
        if first != NO_OFFSET:
            txn = CompletedTxn(producer_id, first, base, marker.type == ABORT)
            if txn.aborted:  # computed before the state counts the transaction as ended
                last_stable = state.last_stable_offset(txn)
                aborted.append(AbortedTxn(producer_id, first, base, last_stable))
            state.complete(txn)
    return aborted
