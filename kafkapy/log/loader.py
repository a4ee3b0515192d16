"""Loading a partition's directory: its segments, recovered where they may be damaged, and its producer state.

Source: Kafka's LogLoader. After a clean stop nothing is scanned but the end of the last segment. After any other
every segment from the recovery point on is checked; at the first damage the log ends and later segments go.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from functools import partial

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import leader_epochs, names, partition_metadata
from kafkapy.log.checkpoints import CheckpointError
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.files import Entry
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.leftovers import clear_leftovers
from kafkapy.log.load_progress import LoadWatch
from kafkapy.log.load_report import LoadReport
from kafkapy.log.loaded_log import LoadedLog
from kafkapy.log.producer_rebuild import rebuild_producer_state
from kafkapy.log.producer_snapshots import SnapshotFiles
from kafkapy.log.producer_state import ProducerState
from kafkapy.log.recovery import OffsetOverflow, Recovery
from kafkapy.log.segment import Segment
from kafkapy.log.segment_deletion import delete_segments
from kafkapy.log.segment_list import SegmentList
from kafkapy.log.sound_load import load_sound

_END_OF_TIME = (1 << 63) - 1


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
        self._report = LoadReport()
        self._entries: dict[str, Entry] = {}

    def load(self) -> LoadedLog:
        """Raises OSError, LoadStopped, and KafkaError for a log that must not be touched."""
        began = time.monotonic()
        try:
            self._entries = clear_leftovers(self._files, self._directory, self._report)
        except FileNotFoundError:
            self._files.make_dir(self._directory)
        if self._clean and not self._report.notes:
            sound = load_sound(self._env, self._directory, self._entries, self._config, self._log_start)
            if sound is not None:
                return sound
        self._segments = SegmentList()
        self._snapshots = SnapshotFiles(self._files, self._directory)
        self._snapshots.report = self._report
        self._epochs = LeaderEpochCache(self._files, self._directory, self._env.later)
        self._load_epochs()
        end = self._load_segments(self._entries)
        snapshots_found = list(self._snapshots.offsets)
        recovery_point = end if self._clean else min(self._recovery_point, end)
        # After a clean stop an epoch that began right at the end is no sign of lost records: its leader goes on.
        self._epochs.truncate_from_end(end + 1 if self._clean else end)
        log_start = max(self._log_start, self._segments.items[0].base_offset)
        self._epochs.truncate_from_start(self._log_start)
        self._snapshots.delete_strays(self._segments.base_offsets)
        # What recovery has found is kept as it is: a producer that was killed off in the middle sends up to five
        # batches again, and the snapshot at the end knows only the last of them.
        producers = self._recovery.state
        rebuild_producer_state(
            producers, self._snapshots, self._segments, log_start, end, self._env.clock.time_ms(), clean=self._clean
        )
        self._snapshots.report = None
        self._report.tell(
            os.path.basename(self._directory),
            log_start,
            end,
            (time.monotonic() - began) * 1000,
            recovered=not self._clean,
        )
        settled = (
            self._clean
            and not self._report.notes
            and not self._segments.active.growing
            and self._snapshots.offsets == snapshots_found
        )
        for segment in self._segments:
            segment.let_go()  # most logs are not asked for anything for long: their files are opened when they are
        return LoadedLog(
            self._segments,
            self._epochs,
            producers,
            self._snapshots,
            log_start,
            end,
            max(recovery_point, log_start),
            settled,
        )

    def topic_id(self) -> bytes | None:
        """Of `partition.metadata`, after `load`; None if there is none. Raises PartitionMetadataError, OSError."""
        entry = self._entries.get(partition_metadata.NAME)
        if entry is None:
            return None
        return partition_metadata.read_topic_id(self._files, self._directory, entry.content)

    def _load_epochs(self) -> None:
        if self._config.record_magic < 2:
            self._epochs.discard()
            return
        if leader_epochs.NAME not in self._entries:
            return
        try:
            self._epochs.load()
        except CheckpointError as reason:
            self._report.note(f"{reason}: every segment was recovered to know the leader epochs")
            self._clean, self._recovery_point = False, 0

    def _load_segments(self, entries: dict[str, Entry]) -> int:
        """Opens, and recovers where that is due; returns the offset behind the last record."""
        while True:
            self._begin(entries)
            try:
                self._open_segments(entries)
                if not self._clean:
                    self._recover()
                return self._end_offset()
            except OffsetOverflow as overflow:
                from kafkapy.log.splitting import split  # hardly ever needed: not at every start

                bases = split(overflow.segment, self._config, self._env.clock)
                self._report.note(f"{overflow}: it was split, into segments at {', '.join(map(str, bases))}")
                self._clean, self._recovery_point = False, min(self._recovery_point, bases[0])
                for segment in self._segments:
                    segment.let_go()
                entries = clear_leftovers(self._files, self._directory, self._report)

    def _begin(self, entries: dict[str, Entry]) -> None:
        self._segments = SegmentList()
        self._bases = sorted(
            offset for name in entries if name.endswith(names.LOG) and (offset := names.offset_of(name)) is not None
        )
        self._snapshots.find(entries)
        self._recovery = Recovery(
            ProducerState(self._env.producer_expiration_ms),
            self._epochs,
            self._snapshots,
            self._report,
            self._log_start,
            self._env.clock.time_ms(),
        )

    def _open_segments(self, entries: dict[str, Entry]) -> None:
        """In ascending order: the producer state of one depends on those before it."""
        for name in entries:
            if name.endswith(names.INDEXES):
                offset = names.offset_of(name)
                if offset is not None and names.file_name(offset, names.LOG) not in entries:
                    self._report.note(f"{name} belongs to no segment, and is removed")
                    self._files.unlink(os.path.join(self._directory, name))
        opened: list[Segment] = []
        for offset in self._bases:
            if names.file_name(offset, names.LOG) in entries:
                self._open_segment(offset, entries, opened)
        self._segments = SegmentList(opened)

    def _open_segment(self, base_offset: int, entries: dict[str, Entry], opened: list[Segment]) -> None:
        """Adds it to those that are `opened`."""
        found = {
            suffix: entries[name]
            for suffix in (names.LOG, *names.INDEXES)
            if (name := names.file_name(base_offset, suffix)) in entries
        }
        segment = Segment(self._files, self._directory, base_offset, self._config, self._env.clock)
        doubt = segment.open(found)
        # From the one with the recovery point on every segment is recovered anyway, when all are open.
        following = self._following(segment)
        is_flushed = self._clean or (following is not None and following <= self._recovery_point)
        if doubt is not None and is_flushed:
            self._segments = SegmentList(opened)
            self._rebuild(segment, doubt)
        opened.append(segment)

    def _rebuild(self, segment: Segment, doubt: str, *, seal: bool = True, serious: bool = True) -> None:
        """Recovers a segment that was flushed, for what is around its records: the log does not end here."""
        self._report.note(f"{segment.file_name}: {doubt}: it was recovered", serious=serious)
        self._recovery.recover(segment, self._segments, self._following(segment), lambda: None)
        if seal:
            segment.seal()
            segment.sync()  # no flush will: the recovery point is behind it

    def _recover(self) -> None:
        unflushed = self._segments.between(self._recovery_point, _END_OF_TIME)
        before = self._segments.items[: len(self._segments) - len(unflushed)]
        # A crash between the steps of a roll leaves its segment with indexes that end in zeros, and more.
        damage = (before[-1].damage() or before[-1].half_rolled()) if before else None
        if damage is not None:
            self._rebuild(before[-1], damage, serious=False)
        self._watch.recovering(len(unflushed))
        ends: list[tuple[Segment, int]] = []
        for at, segment in enumerate(unflushed):
            if at:
                self._watch.checked(unflushed[at - 1].size)
            size, later = segment.size, unflushed[at + 1 :]
            found = self._recovery.recover(
                segment, self._segments, self._following(segment), partial(self._drop_damaged, later)
            )
            ends.append((segment, max(found.next_offset, segment.base_offset)))
            if found.valid_end < size:
                break
            if later:
                self._note_overlap(*ends[-1], later[0])
                segment.seal()
        for segment, end in ends:
            if end > ends[-1][1]:
                self._check_reach(segment, ends[-1][1])

    def _following(self, segment: Segment) -> int | None:
        """The base offset of the next segment."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else None

    def _note_overlap(self, segment: Segment, end: int, following: Segment) -> None:
        if end > following.base_offset:
            self._report.note(
                f"{segment.file_name} reaches offset {end - 1}, into {following.file_name}: both were left as they are"
            )

    def _check_reach(self, segment: Segment, end: int) -> None:
        """Refuses a log in which this segment, not the last one, has batches behind the log's end.

        One batch may be there: the CRC does not cover its offset. Nobody finds it, and nobody misses what is not there.
        """
        found = segment.locate(end, segment.size)
        if found is not None and found[0] + found[1] < segment.size:
            raise KafkaError(
                Errors.KAFKA_STORAGE_ERROR,
                f"{self._directory} has segments that overlap: {segment.file_name} goes on behind offset {end}, where "
                f"the log ends: move those away that do not belong to it",
            )

    def _drop_damaged(self, later: tuple[Segment, ...]) -> None:
        if later:
            size = sum(segment.size for segment in later)
            self._report.note(f"the {len(later)} segments behind it, {size} bytes, are deleted")
            self._drop(later, "they lie behind a damaged one")

    def _end_offset(self) -> int:
        """The offset behind the last record; makes the log's first segment if there is none (any more)."""
        if len(self._segments):
            end = self._end_of_active()
            if end >= self._log_start:
                return end
            self._report.note(
                f"it ends at {end}, before its log start offset {self._log_start}: all {len(self._segments)} segments "
                f"are deleted"
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
        damage = segment.damage()
        found = segment.tail() if damage is None else None
        if found is None or found.stopped_by is not None:
            self._rebuild(segment, damage or str(found and found.stopped_by), seal=False)
            found = segment.tail()
        return max(found.next_offset, segment.base_offset)

    def _drop(self, gone: tuple[Segment, ...], why: str) -> None:
        self._segments = self._segments.without(gone)
        delete_segments(self._env, gone, self._snapshots, self._config.file_delete_delay_ms, why)
        self._files.sync_dir(self._directory)  # else a power cut could bring them back behind new records
