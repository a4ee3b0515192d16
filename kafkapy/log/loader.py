"""Loading a partition's directory: its segments, recovered where they may be damaged, and its producer state.

Source: Kafka's LogLoader. After a clean stop nothing is scanned but the end of the last segment. After any other
every segment from the recovery point on is checked; at the first damage the log ends and later segments go.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from kafkapy.log import names
from kafkapy.log.checkpoints import CheckpointError
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.files import Entry
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.leftovers import clear_leftovers
from kafkapy.log.load_progress import LoadWatch
from kafkapy.log.producer_rebuild import rebuild_producer_state
from kafkapy.log.producer_snapshots import SnapshotFiles
from kafkapy.log.producer_state import ProducerState
from kafkapy.log.recovery import recover_segment
from kafkapy.log.segment import Segment
from kafkapy.log.segment_deletion import delete_segments
from kafkapy.log.segment_list import SegmentList

_END_OF_TIME = (1 << 63) - 1

_log = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    segments: SegmentList
    epochs: LeaderEpochCache
    producers: ProducerState
    snapshots: SnapshotFiles
    log_start_offset: int
    end_offset: int
    recovery_point: int


class Loader:
    """Loads one directory; `load` once. An empty directory becomes an empty log."""

    def __init__(
        self,
        env: Environment,
        directory: str,
        config: LogConfig,
        *,
        clean: bool,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        watch: LoadWatch | None = None,
    ) -> None:
        """`clean`: whether the log directory was stopped cleanly; the two offsets are those of its checkpoints."""
        self._env = env
        self._files = env.files
        self._directory = directory
        self._config = config
        self._clean = clean
        self._log_start = log_start_offset
        self._recovery_point = recovery_point
        self._watch = watch or LoadWatch()
        self._segments = SegmentList()
        self._snapshots = SnapshotFiles(env.files, directory)
        self._producers = ProducerState(env.producer_expiration_ms)
        self._epochs = LeaderEpochCache(
            env.files, directory, lambda write: env.later(f"leader epochs of {directory}", write)
        )

    def load(self) -> LoadedLog:
        """Raises OSError, LoadStopped, and KafkaError where the message format is not supported."""
        entries = clear_leftovers(self._files, self._directory)
        self._snapshots.find(entries)
        self._load_epochs()
        self._open_segments(entries)
        if not self._clean:
            self._recover()
        end = self._end_offset()
        recovery_point = end if self._clean else min(self._recovery_point, end)
        self._segments.active.make_active()
        self._epochs.truncate_from_end(end)
        log_start = max(self._log_start, self._segments.items[0].base_offset)
        self._epochs.truncate_from_start(self._log_start)
        self._snapshots.delete_strays(self._segments.base_offsets)
        # What recovery has found is kept as it is: a producer that was killed off in the middle sends up to five
        # batches again, and the snapshot at the end knows only the last of them.
        producers = self._producers
        rebuild_producer_state(
            producers, self._snapshots, self._segments, log_start, end, self._env.clock.time_ms(), clean=self._clean
        )
        return LoadedLog(
            self._segments, self._epochs, producers, self._snapshots, log_start, end, max(recovery_point, log_start)
        )

    def _load_epochs(self) -> None:
        if self._config.record_magic < 2:
            self._epochs.discard()
            return
        try:
            self._epochs.load()
        except CheckpointError as reason:
            _log.warning("%s; every segment is recovered to know the leader epochs", reason)
            self._clean, self._recovery_point = False, 0

    def _open_segments(self, entries: dict[str, Entry]) -> None:
        """In ascending order: the producer state of one depends on those before it."""
        for name in sorted(entries):
            offset = names.offset_of(name)
            if offset is None:
                continue
            if name.endswith(names.INDEXES) and names.file_name(offset, names.LOG) not in entries:
                _log.warning("%s: removing %s, which belongs to no segment", self._directory, name)
                self._files.unlink(os.path.join(self._directory, name))
            elif name == names.file_name(offset, names.LOG):
                self._open_segment(offset, entries)

    def _open_segment(self, base_offset: int, entries: dict[str, Entry]) -> None:
        sizes = {
            suffix: entries[name].size
            for suffix in (names.LOG, *names.INDEXES)
            if (name := names.file_name(base_offset, suffix)) in entries
        }
        segment = Segment(self._files, self._directory, base_offset, self._config, self._env.clock)
        doubt = segment.open(sizes)
        if doubt is not None:
            if self._clean or base_offset < self._recovery_point:
                _log.warning("%s: %s; the segment is recovered", segment, doubt)
            self._recover_segment(segment)
            segment.seal()
        self._segments = self._segments.with_added(segment)

    def _recover_segment(self, segment: Segment) -> int:
        """Returns how many bytes were cut off. The indexes stay in memory: it may be the active segment."""
        return recover_segment(
            segment,
            self._segments,
            self._producers,
            self._epochs,
            self._snapshots,
            self._log_start,
            self._env.clock.time_ms(),
        )

    def _recover(self) -> None:
        unflushed = self._segments.between(self._recovery_point, _END_OF_TIME)
        before = self._segments.items[: len(self._segments) - len(unflushed)]
        if before and before[-1].has_growing_indexes():
            _log.warning("%s: its indexes end in zeros: the roll at its end was cut short; it is recovered", before[-1])
            unflushed = (before[-1], *unflushed)
        self._watch.recovering(len(unflushed))
        for at, segment in enumerate(unflushed):
            if at:
                self._watch.checked(unflushed[at - 1].size)
            if self._recover_segment(segment):
                self._drop(unflushed[at + 1 :], f"the log ends in {segment}, which was damaged")
                break
            if segment is not self._segments.active:
                segment.seal()

    def _end_offset(self) -> int:
        """The offset behind the last record; makes the log's first segment if there is none (any more)."""
        if len(self._segments):
            end = self._end_of_active()
            if end >= self._log_start:
                return end
            _log.warning(
                "%s ends at %d, before its log start offset %d: all segments go", self._directory, end, self._log_start
            )
            self._drop(self._segments.items, "they lie before the log start offset")
            self._epochs.clear()
            self._snapshots.delete_all()
        env, directory = self._env, self._directory
        segment = Segment.create(self._files, directory, self._log_start, self._config, env.clock)
        self._segments = self._segments.with_added(segment)
        return self._log_start

    def _end_of_active(self) -> int:
        segment = self._segments.active
        found = segment.tail()
        if found.stopped_by is not None:
            _log.warning("%s: %s; the segment is recovered", segment, found.stopped_by)
            self._recover_segment(segment)
            found = segment.tail()
        return max(found.next_offset, segment.base_offset)

    def _drop(self, gone: tuple[Segment, ...], why: str) -> None:
        self._segments = self._segments.without(gone)
        delete_segments(self._env, gone, self._snapshots, self._config.file_delete_delay_ms, why)
