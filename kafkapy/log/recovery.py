"""Recovering one segment: every batch is checked, the file is cut behind the last good one, the indexes are rebuilt.

Source: Kafka's LogSegment.recover and LogLoader.recoverSegment.
"""

from __future__ import annotations

import logging
from struct import Struct

from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.producer_rebuild import rebuild_producer_state, replay, take_snapshot
from kafkapy.log.producer_snapshots import SnapshotFiles
from kafkapy.log.producer_state import CompletedTxn, ProducerState
from kafkapy.log.segment import Segment
from kafkapy.log.segment_list import SegmentList
from kafkapy.log.txn_index import AbortedTxn

_EPOCH = Struct("=qq")

_log = logging.getLogger(__name__)


def recover_segment(
    segment: Segment,
    segments: SegmentList,
    state: ProducerState,
    epochs: LeaderEpochCache,
    snapshots: SnapshotFiles,
    log_start_offset: int,
    now_ms: int,
) -> int:
    """Returns how many bytes were cut off. `segments` are those around it, for the producer state before it.

    `state` becomes that at the segment's end. Handed from segment to segment it keeps the last five batches of each
    producer, of which a snapshot holds one. Raises OSError.
    """
    rebuild_producer_state(state, snapshots, segments, log_start_offset, segment.base_offset, now_ms)
    cut = rebuild_segment(segment, state, epochs)
    take_snapshot(state, snapshots)
    return cut


def rebuild_segment(segment: Segment, state: ProducerState, epochs: LeaderEpochCache) -> int:
    """Checks the file and builds the three indexes, the producer state and the leader epochs from it."""
    segment.offset_index.rebuild()
    segment.time_index.rebuild()
    segment.txn_index.reset()
    file = segment.handle()
    found = segment.files.scan(file, 0, segment.size, segment.base_offset, segment.index_interval)
    segment.offset_index.take(found.offset_entries)
    segment.time_index.take(found.time_stamps, found.time_offsets)
    for epoch, offset in _EPOCH.iter_unpack(found.epochs):
        if epoch > epochs.latest_epoch:
            epochs.assign(epoch, offset)

    def completed(txn: CompletedTxn) -> None:
        if txn.aborted:
            entry = AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, state.last_stable_offset(txn))
            segment.txn_index.append(entry)

    replay(state, segment, found.producers, completed)
    state.end_offset = max(state.end_offset, found.next_offset)
    cut = segment.size - found.valid_end
    if cut:
        _log.warning("%s: %s; the last %d bytes are cut off", segment.handle().path, found.stopped_by, cut)
        segment.files.truncate(file, found.valid_end)
        segment.size = found.valid_end
    segment.max_timestamp = (found.max_timestamp, found.max_timestamp_offset)
    segment.time_index.maybe_append(found.max_timestamp, found.max_timestamp_offset)
    return cut
