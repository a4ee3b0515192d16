"""Load the log of one partition from its directory: segments, leader epochs and producer state (Kafka's LogLoader).

After a clean shutdown, which only the marker file in the log directory proves, just the end of the last segment is
scanned. After any other stop every segment from the recovery point on is checked. The log is cut at the first damage,
and later segments are deleted. A recovery point at the end of the log does not prove a clean shutdown: it says nothing
about the last segment's indexes and the producer snapshot.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from functools import partial
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import leader_epochs, names
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import partition_metadata
from kafkapy.log.directories.checkpoints import CheckpointError
from kafkapy.log.directories.partition_metadata import PartitionMetadataError
from kafkapy.log.environment import Environment
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.loading.leftovers import clear_leftovers
from kafkapy.log.loading.load_progress import LoadReport, LoadWatch
from kafkapy.log.loading.recovery import OffsetOverflow, Recovery
from kafkapy.log.producers.producer_rebuild import rebuild_producer_state
from kafkapy.log.producers.producer_snapshots import SnapshotFiles
from kafkapy.log.producers.producer_state import ProducerState
from kafkapy.log.segments.deletion import delete_segments
from kafkapy.log.segments.segment import Segment
from kafkapy.log.segments.segment_list import OlderSegments, SegmentList
from kafkapy.log.storage.files import Entry, Files, OlderFiles
from kafkapy.runtime.clock import Clock

_LAST_OFFSET = (1 << 63) - 1
_DIGITS = len(names.file_name(0, ""))
_OF_SEGMENT = frozenset({names.LOG, *names.INDEXES})

_log = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """The result of loading a log: its segments, leader epochs, producer state and offsets."""

    segments: SegmentList
    epochs: LeaderEpochCache
    producers: ProducerState
    snapshots: SnapshotFiles
    log_start_offset: int
    end_offset: int
    recovery_point: int
    durable: bool  # nothing was damaged, everything was durable, and loading changed no file
    unsynced: Segment | None = None  # the last segment below the recovery point; its indexes may not be durable
    topic_id: bytes | None = None


class LogLoader:
    """Loads the log in one partition's directory. Call `load` once. For an empty directory the result is an
    empty log.
    """

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
        """`clean`: the log directory has the clean-shutdown marker. Both offsets come from its checkpoint files.

        The progress of a recovery is reported to `watch`.
        """
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
        self._older = OlderFiles()  # segments that are made when they are first used: only if `clean`
        self._unsynced: Segment | None = None

    def load(self) -> LoadedLog:
        """Load the log, recovering and repairing it if necessary, and return its parts.

        Raises OSError, LoadStopped, and KafkaError for a log that must not be changed, such as one whose segments
        overlap.
        """
        began = time.monotonic()
        try:
            self._entries, self._older = clear_leftovers(self._files, self._directory, self._report, apart=self._clean)
        except FileNotFoundError:
            self._files.make_dir(self._directory)
        self._snapshots = SnapshotFiles(self._files, self._directory)
        self._snapshots.report = self._report
        self._epochs = LeaderEpochCache(self._files, self._directory, self._env.later)
        self._load_epochs()
        end = self._load_segments()
        snapshots_found = list(self._snapshots.offsets)
        recovery_point = end if self._clean else min(self._recovery_point, end)
        # A leader epoch that begins exactly at the end has no records. After a crash its records may have been lost, so
        # the epoch is dropped. After a clean shutdown there were none, and the epoch is still valid.
        self._epochs.truncate_from_end(end + 1 if self._clean else end)
        log_start = max(self._log_start, self._segments.base_offsets[0])
        self._epochs.truncate_from_start(self._log_start)
        self._snapshots.delete_strays(self._segments.base_offsets)
        # The producer state built during recovery is kept. It has the last five batches of each producer, any of which
        # a producer may retry after a crash; a snapshot has only the last one.
        producers = self._recovery.state
        rebuild_producer_state(
            producers, self._snapshots, self._segments, log_start, end, self._env.clock.time_ms(), clean=self._clean
        )
        self._snapshots.loaded()
        self._report.log(
            os.path.basename(self._directory),
            log_start,
            end,
            (time.monotonic() - began) * 1000,
            recovered=not self._clean,
        )
        durable = (
            self._clean
            and not self._report.notes
            and not self._segments.active.growing
            and self._snapshots.offsets == snapshots_found
        )
        for segment in self._segments.made:
            segment.release()  # most logs stay unused for a long time; their files are opened on first use
        return LoadedLog(
            self._segments,
            self._epochs,
            producers,
            self._snapshots,
            log_start,
            end,
            max(recovery_point, log_start),
            durable,
            self._unsynced,
            self._topic_id(),
        )

    def _topic_id(self) -> bytes | None:
        """Return the topic id in `partition.metadata`, None if there is no such file or it is invalid. Raises
        OSError.
        """
        entry = self._entries.get(partition_metadata.NAME)
        if entry is None:
            return None
        try:
            return partition_metadata.read_topic_id(self._files, self._directory, entry.content)
        except PartitionMetadataError as reason:
            _log.warning("%s; the topic id is taken from the cluster", reason)
            return None

    def _load_epochs(self) -> None:
        if self._config.record_magic < 2:
            self._epochs.discard()
            return
        entry = self._entries.get(leader_epochs.NAME)
        if entry is None:
            return
        try:
            self._epochs.load(entry.content)
        except CheckpointError as reason:
            self._report.note(f"{reason}: every segment was recovered to know the leader epochs")
            self._clean, self._recovery_point = False, 0

    def _load_segments(self) -> int:
        """Open the segments, recover those that may be damaged, and return the log end offset."""
        if self._older and (not self._clean or sum(name.endswith(names.LOG) for name in self._entries) != 1):
            self._list_all()
        while True:
            self._begin(self._entries)
            try:
                self._open_segments()
                if not self._clean:
                    self._recover()
                return self._end_offset()
            except OffsetOverflow as overflow:
                from kafkapy.log.segments.splitting import split  # rarely needed: not imported at every start

                bases = split(overflow.segment, self._config, self._env.clock)
                self._report.note(f"{overflow}: it was split, into segments at {', '.join(map(str, bases))}")
                self._clean, self._recovery_point = False, min(self._recovery_point, bases[0])
                for segment in self._segments.made:
                    segment.release()
                self._list_all()

    def _list_all(self) -> None:
        """List the directory again, with the files of all segments, because some must be checked or recovered."""
        self._entries, self._older = clear_leftovers(self._files, self._directory, self._report)

    def _begin(self, entries: dict[str, Entry]) -> None:
        self._segments = SegmentList()
        self._found: dict[int, dict[str, Entry]] = {}
        snapshots: dict[int, bytes | None] = {}
        for name, entry in entries.items():
            offset = names.offset_of(name)
            if offset is None:
                continue
            dot = name.index(".")
            suffix = name[dot:]
            if suffix == names.SNAPSHOT:
                snapshots[offset] = entry.content
            elif suffix in _OF_SEGMENT and dot == _DIGITS:
                self._found.setdefault(offset, {})[suffix] = entry
        self._bases = [offset for offset, found in self._found.items() if names.LOG in found]  # ascending, as listed
        if self._older:
            self._bases = self._older.base_offsets + self._bases
            snapshots |= dict.fromkeys(self._older.snapshots)
        self._snapshots.find(snapshots)
        self._recovery = Recovery(
            ProducerState(self._env.producer_expiration_ms, self._env.max_producers),
            self._epochs,
            self._snapshots,
            self._report,
            self._log_start,
            self._env.clock.time_ms(),
        )

    def _open_segments(self) -> None:
        """Open the log's segments in ascending order, because the producer state of each depends on the segments before
        it.

        Index files without a .log file are removed.
        """
        opened: list[Segment] = []
        for base_offset, found in self._found.items():
            if names.LOG in found:
                self._open_segment(base_offset, found, opened)
                continue
            for entry in found.values():
                self._report.note(f"{entry.name} belongs to no segment, and is removed")
                self._files.unlink(os.path.join(self._directory, entry.name))
        self._segments = self._list_of(opened)

    def _list_of(self, opened: list[Segment]) -> SegmentList:
        if not self._older:
            return SegmentList(opened)
        make = partial(_make_older, self._files, self._directory, self._config, self._env.clock)
        return SegmentList(opened, OlderSegments(self._older, make))

    def _open_segment(self, base_offset: int, found: dict[str, Entry], opened: list[Segment]) -> None:
        """Open one segment, whose directory entries are `found`, and append it to `opened`.

        Recovers the segment if it looks damaged, unless `_recover` will do so later: after a crash, from the recovery
        point on.
        """
        segment = Segment(self._files, self._directory, base_offset, self._config, self._env.clock)
        doubt = segment.open(found)
        # Segments from the recovery point on are recovered anyway, once all segments are open.
        following = self._following(segment)
        is_flushed = self._clean or (following is not None and following <= self._recovery_point)
        if doubt is not None and is_flushed:
            self._segments = self._list_of(opened)
            self._rebuild(segment, doubt)
        opened.append(segment)

    def _rebuild(self, segment: Segment, doubt: str, *, seal: bool = True, serious: bool = True) -> None:
        """Recover a segment whose records were flushed, because one of its indexes or the end of its .log file is
        damaged.
        """
        self._report.note(f"{segment.file_name}: {doubt}: it was recovered", serious=serious)
        self._recovery.recover(segment, self._segments, self._following(segment), lambda: None)
        if seal:
            segment.seal()
            segment.sync()  # no later flush covers this segment, which is below the recovery point

    def _recover(self) -> None:
        unflushed = self._segments.between(self._recovery_point, _LAST_OFFSET)
        before = self._segments.items[: len(self._segments) - len(unflushed)]
        if before:
            # A crash in the middle of a roll can leave the rolled segment with indexes that still end in zeros, among
            # other things.
            damage = before[-1].damage() or before[-1].lost_part_of_roll()
            if damage is not None:
                self._rebuild(before[-1], damage, serious=False)
            # After a kill the files may look right only because they are in the page cache: a power cut could still
            # undo the roll.
            before[-1].mark_unsynced()
            self._unsynced = before[-1]
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
        """Return the base offset of the segment after `segment`, None if `segment` is the last one."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else None

    def _note_overlap(self, segment: Segment, end: int, following: Segment) -> None:
        if end > following.base_offset:
            self._report.note(
                f"{segment.file_name} reaches offset {end - 1}, into {following.file_name}: both were left as they are"
            )

    def _check_reach(self, segment: Segment, end: int) -> None:
        """Raise KafkaError if `segment`, which is not the last one, has more than one batch beyond `end`, the log's end
        offset.

        A single batch proves nothing: its offset may be damaged, because the CRC does not cover it.
        """
        found = segment.locate(end, segment.size)
        if found is not None and found[0] + found[1] < segment.size:
            raise KafkaError(
                Errors.KAFKA_STORAGE_ERROR,
                f"{self._directory} has segments that overlap: {segment.file_name} has records after offset {end}, "
                f"where the log ends: move the segments away that do not belong to it",
            )

    def _drop_damaged(self, later: tuple[Segment, ...]) -> None:
        if later:
            size = sum(segment.size for segment in later)
            self._report.note(f"the {len(later)} segments behind it, {size} bytes, are deleted")
            self._drop(later, "they lie behind a damaged one")

    def _end_offset(self) -> int:
        """Return the log end offset. Creates an empty segment if the log has no segments.

        If the log ends before its log start offset, all segments are deleted first.
        """
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
        # else a power cut could bring the segments back after new records were appended
        self._files.sync_dir(self._directory)


def _make_older(files: Files, directory: str, config: LogConfig, clock: Clock, base_offset: int, size: int) -> Segment:
    """Make a segment that is not the last one of its log, without a system call."""
    segment = Segment(files, directory, base_offset, config, clock)
    segment.size = size
    segment.offset_index.open(None)
    segment.time_index.open(None)
    return segment
