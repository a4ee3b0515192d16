"""Recover one segment: check every batch, cut the file after the last good batch, and rebuild the indexes.

Source: Kafka's LogSegment.recover and LogLoader.recoverSegment.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from kafkapy._ext.segment_scan import Scan
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.loading.load_progress import LoadReport
from kafkapy.log.producers.producer_rebuild import reader_of, rebuild_producer_state, replay, take_snapshot
from kafkapy.log.producers.producer_snapshots import SnapshotFiles
from kafkapy.log.producers.producer_state import ProducerState
from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET, WITHOUT_ENTRIES, Segment
from kafkapy.log.segments.segment_list import SegmentList

_EPOCH = Struct("=qq")
_OFFSET = Struct(">q")


class OffsetOverflow(Exception):
    """Raised when a segment has valid batches whose offsets are too far from its base offset for an index entry.

    The segment must be split. The cleaner of brokers before Kafka 1.1 could write such segments (KAFKA-6264).
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment} holds offsets more than 2^31 above its base offset")
        self.segment = segment


class Recovery:
    """Recovers the segments of one log, in offset order, which also updates the log's producer state and leader
    epochs.
    """

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
        """Check every batch of a segment, cut the file after the last good batch, and rebuild the indexes; return the
        Scan.

        Afterwards `state` is the producer state at the end of the segment. `before`: the log's segments, from which the
        producer state is rebuilt if needed. `following`: the base offset of the next segment. The state is passed on
        from segment to segment because it has the last five batches of each producer, and a snapshot only has one.
        `at_damage` is called before the segment is cut, to delete later segments: if a crash came between the cut and
        that deletion, the log would have a gap that nothing detects. Raises OSError, OffsetOverflow, and KafkaError if
        the content does not fit the file's name.
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
        # The transaction index is written first. A flushed segment is recovered because its other indexes are damaged;
        # if those were rebuilt first, a crash in between would leave a segment that looks undamaged but lacks aborted
        # transactions, so that their records would be read as committed.
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
            # else a power cut could bring the cut-off bytes back after the records that are appended next
            segment.files.sync(file)
            segment.size = found.valid_end
        segment.max_timestamp = (found.max_timestamp, found.max_timestamp_offset)
        segment.time_index.maybe_append(found.max_timestamp, found.max_timestamp_offset)
        return found

    def _replay(self, segment: Segment, found: Scan) -> list[AbortedTxn]:
        """Apply the batches of the segment to the producer state; return the aborted transactions whose marker is in
        the segment.
        """
        aborted = replay(self.state, reader_of(segment), found.producers)
        self.state.end_offset = max(self.state.end_offset, found.next_offset)
        return aborted


def check_out_of_place(segment: Segment, found: Scan, following: int | None) -> None:
    """Raise an error if the batches at which the scan stopped are valid and only in the wrong file, so must not be cut
    off.

    Raises OffsetOverflow for batches too far from the segment's base offset, KafkaError if all offsets in the file are
    lower than the file's name. The CRC does not cover a batch's offset, so one wrong offset proves nothing: it is
    treated as damage unless the batches after it are consistent with it.
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
    # Only the cleaner could write such a segment, and the cleaner never cleans the last segment of a log.
    if too_far and following is not None and alone.next_offset <= following:
        raise OffsetOverflow(segment)
