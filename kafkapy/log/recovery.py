"""Recovering one segment: every batch is checked, the file is cut behind the last good one, the indexes are rebuilt.

Source: Kafka's LogSegment.recover and LogLoader.recoverSegment.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from kafkapy._ext.segment_scan import Scan
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.load_report import LoadReport
from kafkapy.log.producer_rebuild import rebuild_producer_state, replay, take_snapshot
from kafkapy.log.producer_snapshots import SnapshotFiles
from kafkapy.log.producer_state import CompletedTxn, ProducerState
from kafkapy.log.segment import MAX_RELATIVE_OFFSET, WITHOUT_ENTRIES, Segment
from kafkapy.log.segment_list import SegmentList
from kafkapy.log.txn_index import AbortedTxn

_EPOCH = Struct("=qq")
_OFFSET = Struct(">q")


class OffsetOverflow(Exception):
    """The segment has good batches too far from its base offset for an index entry: it has to be split.

    Brokers before Kafka 1.1 could write such segments by cleaning (KAFKA-6264).
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment} holds offsets more than 2^31 above its base offset")
        self.segment = segment


class Recovery:
    """Recovers the segments of one log, in order. State, epochs and snapshots are those of the log, and change."""

    def __init__(
        self,
        state: ProducerState,
        epochs: LeaderEpochCache,
        snapshots: SnapshotFiles,
        report: LoadReport,
        log_start_offset: int,
        now_ms: int,
    ) -> None:
        self.state = state
        self._epochs = epochs
        self._snapshots = snapshots
        self._report = report
        self._log_start = log_start_offset
        self._now_ms = now_ms

    def recover(
        self, segment: Segment, before: SegmentList, following: int | None, at_damage: Callable[[], None]
    ) -> Scan:
        """`before` are the segments around it, for the producer state; that becomes the one at the segment's end.

        `following` is the base offset of the next one. Handed from segment to segment the state keeps the last five
        batches of each producer, of which a snapshot holds one. `at_damage` is called before the segment is cut: a
        crash in between must not leave a cut segment with others behind it, which would be a gap that nobody notices.
        Raises OSError, OffsetOverflow, and KafkaError if the file's name is not that of its content.
        """
        rebuild_producer_state(self.state, self._snapshots, before, self._log_start, segment.base_offset, self._now_ms)
        found = self._rebuild(segment, following, at_damage)
        take_snapshot(self.state, self._snapshots)
        return found

    def _rebuild(self, segment: Segment, following: int | None, at_damage: Callable[[], None]) -> Scan:
        file, size = segment.handle(), segment.size
        found = segment.files.scan(file, 0, size, segment.base_offset, segment.index_interval)
        if found.valid_end < size:
            check_out_of_place(segment, found, following)
        # Before the other indexes, whose state is why a flushed segment is recovered: after a crash in between it would
        # pass for sound, and without its aborted transactions their records for committed ones.
        segment.txn_index.replace(self._replay(segment, found))
        segment.offset_index.rebuild()
        segment.time_index.rebuild()
        segment.offset_index.take(found.offset_entries)
        segment.time_index.take(found.time_stamps, found.time_offsets)
        for epoch, offset in _EPOCH.iter_unpack(found.epochs):
            if epoch > self._epochs.latest_epoch:
                self._epochs.assign(epoch, offset)
        if found.valid_end < size:
            at_damage()
            cut = size - found.valid_end
            self._report.note(f"{segment.file_name}: {found.stopped_by}: the last {cut} bytes are cut off")
            segment.files.truncate(file, found.valid_end)
            segment.files.sync(file)  # else a power cut could bring it back behind what is appended next
            segment.size = found.valid_end
        segment.max_timestamp = (found.max_timestamp, found.max_timestamp_offset)
        segment.time_index.maybe_append(found.max_timestamp, found.max_timestamp_offset)
        return found

    def _replay(self, segment: Segment, found: Scan) -> list[AbortedTxn]:
        """Returns the aborted transactions that end in the segment."""
        state = self.state
        aborted = []

        def completed(txn: CompletedTxn) -> None:
            if txn.aborted:
                last_stable = state.last_stable_offset(txn)
                aborted.append(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, last_stable))

        replay(state, segment, found.producers, completed)
        state.end_offset = max(state.end_offset, found.next_offset)
        return aborted


def check_out_of_place(segment: Segment, found: Scan, following: int | None) -> None:
    """Whether what stopped the scan is good, and only in the wrong file: then it is not cut off.

    Raises OffsetOverflow for batches too far from the segment's base offset, KafkaError where all that the file holds
    lies before its name. The CRC does not cover a batch's offset, so an odd one alone proves nothing: it is damage
    unless what comes after it fits.
    """
    file, base = segment.handle(), segment.base_offset
    head = segment.files.pread(file, _OFFSET.size, found.valid_end)
    if len(head) < _OFFSET.size:
        return
    (offset,) = _OFFSET.unpack(head)
    if offset < 0 or (offset < base and found.valid_end):
        return
    alone = segment.files.scan(file, found.valid_end, segment.size, offset, WITHOUT_ENTRIES)
    if alone.batches > 1 and alone.next_offset <= base:
        raise KafkaError(
            Errors.KAFKA_STORAGE_ERROR,
            f"{file.path} holds offsets {offset} to {alone.next_offset - 1}, which lie before its name: rename the "
            f"segment's files to {offset:020d} if they belong to this log, else move them away",
        )
    too_far = alone.batches and alone.next_offset - 1 - base > MAX_RELATIVE_OFFSET
    # Only a cleaning could make such a segment, and it never cleaned the last one of a log.
    if too_far and following is not None and alone.next_offset <= following:
        raise OffsetOverflow(segment)
