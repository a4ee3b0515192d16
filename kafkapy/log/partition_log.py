"""The log of one partition (Kafka's UnifiedLog over LocalLog): appends, reads, rolls, flushes, truncation.

A network thread may only call `append(blocking=False)`, `read(blocking=False)` and methods that just read memory. All
others may wait for the disk. An OSError takes the log directory offline and is raised as LogDirFailure, which later
calls raise, too. A shortage (full disk, too many open files) is a KafkaError and does not take the directory offline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kafkapy._ext.entry_walk import any_older
from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names
from kafkapy.log.append.appender import Append, Verdict
from kafkapy.log.append.follower import Followed, write_followed
from kafkapy.log.append.room import Room
from kafkapy.log.append.rules import Records, rules_of
from kafkapy.log.config import LogConfig
from kafkapy.log.directories import partition_metadata
from kafkapy.log.environment import Environment
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.flushing.flushing import Flusher
from kafkapy.log.indexes.repair import repair_indexes
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.loading.load_progress import LoadWatch
from kafkapy.log.loading.log_loader import LoadedLog, LogLoader
from kafkapy.log.producers.producer_rebuild import take_snapshot
from kafkapy.log.producers.producer_snapshots import SnapshotFiles
from kafkapy.log.reading import log_reader, time_lookup
from kafkapy.log.results import (
    BUSY,
    ActiveProducer,
    AppendResult,
    Busy,
    ReadResult,
    TimestampOffset,
)
from kafkapy.log.retention import cleanup
from kafkapy.log.retention.policy import KafkaRetention, RetentionPolicy
from kafkapy.log.segments.segment import Segment
from kafkapy.log.segments.segment_list import SegmentList
from kafkapy.log.segments.upkeep import Upkeep
from kafkapy.record.file_region import FileRegion

if TYPE_CHECKING:
    from kafkapy.log.reading.down_conversion import DownConversion

__all__ = ["BUSY", "AppendResult", "PartitionLog", "ReadResult"]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """The interface of an object that must know when a log changes. PartitionLog.notify_watchers calls its `changed`
    method, and PartitionLog.notify_end_watchers its `end_moved` method."""

    def changed(self) -> object: ...

    def end_moved(self) -> object: ...


class Place(NamedTuple):
    """The files of a log and the state that belongs to them: what changes when the log moves to another directory."""

    env: Environment
    directory: str
    segments: SegmentList
    end: tuple[int, Segment, int]
    leader_epochs: LeaderEpochCache
    snapshots: SnapshotFiles
    recovery_point: int


class PartitionLog:
    """The log of one partition, opened by `load`. As in Kafka, the log end offset is the offset of the next record.

    The state is `segments`, `end`, `log_start_offset`, `high_watermark` and `recovery_point`. Only methods of this
    class change the state: the high watermark under a lock of its own, the rest under `lock`. Invariants:

    - log start offset <= high watermark <= end offset, and recovery point <= end offset;
    - the first segment contains the log start offset, or lies below it;
    - `end` is (end offset, active segment, byte position in that segment): where the records end that readers may see;
    - only a truncation moves the high watermark back, once there is a leader.

    Readers take no lock: `segments` and `end` are replaced, never changed in place.
    """

    @classmethod
    def load(
        cls,
        env: Environment,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        clean: bool = True,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        topic_id: bytes | None = None,
        watch: LoadWatch | None = None,
    ) -> PartitionLog:
        """Open the log in `directory`, or create an empty log there. Unless `clean`, first recover the log.

        `clean` means that the broker has shut down the log directory cleanly. A recovery checks all records from
        `recovery_point` on and may take long; `watch` follows its progress and can stop it. `topic_id` (16 bytes) is
        written to partition.metadata if that file does not exist. Raises KafkaError INCONSISTENT_TOPIC_ID if the file
        has another topic id, and OSError.
        """
        loader = LogLoader(
            env,
            directory,
            config,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            watch=watch,
        )
        log = cls(env, directory, topic, partition, config, loader.load())
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def __init__(
        self, env: Environment, directory: str, topic: str, partition: int, config: LogConfig, loaded: LoadedLog
    ) -> None:
        self.env = env
        self.clock = env.clock
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = names.dir_name(topic, partition)
        self.topic_id = loaded.topic_id
        self.config = config
        # Lock order: upkeep, the flusher's lock, this lock, then the lock of the leader epochs, that of the high
        # watermark or that of the producer state. A thread that holds one of them may only take locks that come later
        # in this order.
        self.lock = threading.Lock()
        # Guards the high watermark, and changes of the end and of the writer's epoch that it depends on. Not `lock`,
        # which an append holds while it writes: no network thread should wait for another append's disk write here.
        self._high_watermark_lock = threading.Lock()
        self.segments = loaded.segments
        self.leader_epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        active = loaded.segments.active
        self.end: tuple[int, Segment, int] = (loaded.end_offset, active, active.size)
        self.flusher = Flusher(self, durable=loaded.durable)
        if loaded.unsynced is not None:
            self.flusher.sync_later(loaded.unsynced)
            following = loaded.segments.after(loaded.unsynced)
            if following is not None:
                self.flusher.sync_snapshot_later(loaded.snapshots.path(following.base_offset))
        self.upkeep = Upkeep(env.upkeep)
        self.retention: RetentionPolicy = env.retention or KafkaRetention()
        self.closed = False
        self.abandoned = False  # closed without a sync, since its files are about to go
        # A copy of this log in another log directory that will take its place, None if the log is not being moved. It
        # is only changed while `upkeep` is held. See kafkapy.log.moves.
        self.future: PartitionLog | None = None
        self._writer_epoch = -1  # the leader epoch that may append; changed under both locks
        # Appends set both, `appended_ms` without the lock: a lost update of it only means that one more append looks
        # whether the end of the log is in the page cache.
        self.appended_ms = 0  # approximate time of the last append that did not wait
        self.write_seconds = 0.0  # how long the last append's write took
        self.room: Room | None = None  # kept by appends; None until the first one
        # Whether a transaction must be verified before its first append (KIP-890). The ReplicaManager sets it, and the
        # next append uses it.
        self.verifies_transactions = False
        self.watchers: dict[Watcher, None] = {}  # for all readers
        self.end_watchers: dict[Watcher, None] = {}  # for followers, which read up to the log end offset
        self.rules = rules_of(config, self.env.max_decompressed)
        self._watch_indexes(loaded.segments)

    def _watch_indexes(self, segments: SegmentList) -> None:
        """Have damaged indexes of these segments rebuilt in the background."""
        segments.watch(self._repair_later)
        for segment in segments.made:
            if segment.offset_index.damage or segment.time_index.damage:
                segment.damaged()

    def __repr__(self) -> str:
        return f"PartitionLog({self.name}, offsets {self.log_start_offset} to {self.log_end_offset}, {self.directory})"

    @property
    def dir(self) -> Path:
        return Path(self.directory)

    @property
    def log_end_offset(self) -> int:
        return self.end[0]

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended (LSO). Never above the high watermark."""
        # No lock is held, so the order of the reads matters. A transaction is recorded as open before the high
        # watermark can pass its first record. If first_unstable_offset were read first, a transaction could begin and
        # the high watermark pass its first record before the second read, and the result would include records of an
        # open transaction.
        high_watermark = self.high_watermark
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return high_watermark
        return min(max(unstable, self.log_start_offset), high_watermark)

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return self.segments.size

    # --- the state, and the only methods that change it; those named `_locked` are called with the lock held

    def snapshot(self) -> tuple[SegmentList, tuple[int, Segment, int]]:
        """Return `segments` and `end` as a consistent pair, for a reader that does not hold the lock.

        A roll changes `segments` before `end`, so the segment in which the log ends is always in the list. A truncation
        changes `end` before `segments`, so a reader that gets the new list also gets the new end, and caches no
        position beyond it.
        """
        while True:
            segments, end = self.segments, self.end
            if self.segments is segments:
                return segments, end

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark of a log that has no leader yet.

        An `offset` outside the log is replaced by the log start offset or by the end offset.
        """
        with self._high_watermark_lock:
            self.high_watermark = max(min(offset, self.end[0]), self.log_start_offset)
        self._high_watermark_moved()

    def advance_high_watermark(self, offset: int, leader_epoch: int) -> None:
        """Move the high watermark up to `offset`, or to the end offset if that is lower. Never moves it down.

        Does nothing if an epoch later than `leader_epoch` has begun, because the leader of an old epoch may not know
        the current ISR.
        """
        with self._high_watermark_lock:
            offset = min(offset, self.end[0])
            if offset <= self.high_watermark or leader_epoch < self._writer_epoch:
                return
            self.high_watermark = offset
        if self.producers.awaits_high_watermark:
            self._high_watermark_moved()

    def follow_high_watermark(self, offset: int, leader_epoch: int) -> bool:
        """Set the high watermark of a follower to `offset`, the leader's, which may be lower. Return True if it moved.

        An `offset` outside the log is replaced by the log start offset or by the end offset. Does nothing if an epoch
        later than `leader_epoch`, in which the offset was fetched, has begun. Source: UnifiedLog.updateHighWatermark.
        """
        with self._high_watermark_lock:
            offset = max(min(offset, self.end[0]), self.log_start_offset)
            if offset == self.high_watermark or leader_epoch < self._writer_epoch:
                return False
            self.high_watermark = offset
        self._high_watermark_moved()
        return True

    def _high_watermark_moved(self) -> None:
        # Most logs have no transaction that may become stable. This test, which callers do too, needs no lock: the
        # append of the transaction's marker is complete, so `awaits_high_watermark` is already true.
        producers = self.producers
        if producers.awaits_high_watermark:
            with producers.lock:  # not `lock`: an append holds it during a disk write, and network threads come here
                producers.high_watermark_moved(self.high_watermark)

    def appended_locked(self, first_offset: int, position: int, end_offset: int) -> None:
        """Move the log's end to `end_offset` after an append to the active segment, so that readers see the records.

        `position` is the byte position in the segment at which the record with `first_offset` begins.
        """
        segment = self.end[1]
        self.segments.remember(first_offset, (segment, position))
        self.end = (end_offset, segment, segment.size)
        if self.env.shortage.lasts:
            self.env.shortage.written()

    def roll_locked(self, base_offset: int = 0) -> None:
        """Begin a new segment, unless the active one is empty and begins at the same offset.

        The segment begins at the end offset, or at `base_offset` if that is higher: offsets that a follower gets may
        have a gap that is too large for one segment. If this raises OSError or any other exception, the old segment is
        still the active one.
        """
        old, end_offset = self.segments.active, max(self.end[0], base_offset)
        if old.size == 0 and old.base_offset == end_offset:
            return
        before = self.producers.end_offset, self.snapshots.taken_at
        try:
            new = Segment.create(self.env.files, self.directory, end_offset, self.config, self.clock)
            self.producers.end_offset = end_offset
            snapshot = take_snapshot(self.producers, self.snapshots, sync=False)
            if snapshot is not None:
                # Before `seal`, which may fail: the retry would find the snapshot written, and not return its path
                # again.
                self.flusher.sync_snapshot_later(snapshot)
            segments = self.segments.with_added(new)
            old.seal()
        except BaseException:
            Segment(self.env.files, self.directory, end_offset, self.config, self.clock).delete()
            if end_offset > self.end[0]:  # the next records may be below `end_offset`: the snapshot would lack them
                self.producers.end_offset, self.snapshots.taken_at = before
                self.snapshots.delete(end_offset)
            raise
        self.flusher.sync_later(old)
        self.segments, self.end = segments, (end_offset, new, 0)
        self.env.later(f"flush {self.name}", lambda: self._rolled_at(end_offset))

    def move_start_locked(self, offset: int) -> None:
        """Move the log start offset up to `offset`, which must not be above the end offset. Never moves it down."""
        if offset > self.log_start_offset:
            with self._high_watermark_lock:
                self.high_watermark = max(self.high_watermark, offset)
            self.log_start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)

    def remove_first_locked(self, gone: Sequence[Segment]) -> None:
        """Remove the oldest segments, `gone`, from the list, and move up the log start offset accordingly.

        The active segment must not be among `gone`. The files are not touched.
        """
        following = self.segments.after(gone[-1])
        assert following is not None, f"{self.name}: the active segment stays"
        # The log start moves before the list changes. So a reader either finds the records, or gets
        # OFFSET_OUT_OF_RANGE.
        self.move_start_locked(following.base_offset)
        self.segments = self.segments.without(gone)

    def replace_segments_locked(self, segments: SegmentList) -> None:
        """Replace the list of segments by another list with the same records and the same active segment.

        No offset changes. A flush in progress is not affected, because it syncs the active segment, which stays.
        """
        assert segments.active is self.segments.active, f"{self.name}: the active segment stays"
        self.segments = segments

    def cut_end_locked(self, segments: SegmentList, end_offset: int, end_position: int) -> None:
        """Replace the list of segments, and end the log at `end_offset`, at byte `end_position` of the last segment.

        The high watermark, the recovery point and the log start offset are lowered to `end_offset` if they are above
        it. Files are not touched.
        """
        self.flusher.truncated()
        with self._high_watermark_lock:
            self.high_watermark = min(self.high_watermark, end_offset)
            self.end = (end_offset, segments.active, end_position)
        self.segments = segments  # after the end: see `snapshot`
        self.recovery_point = min(self.recovery_point, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)

    def restart_locked(self, segment: Segment) -> None:
        """Replace all segments by the empty `segment`. The log then begins and ends at the segment's base offset."""
        offset = segment.base_offset
        self.log_start_offset = offset
        self.cut_end_locked(SegmentList([segment]), offset, 0)
        with self._high_watermark_lock:
            self.high_watermark = offset
        self.recovery_point = offset

    def place(self) -> Place:
        """Return the present Place of the log. Called with the lock held."""
        return Place(
            self.env,
            self.directory,
            self.segments,
            self.end,
            self.leader_epochs,
            self.snapshots,
            self.recovery_point,
        )

    def put_locked(self, place: Place) -> None:
        """Use the files at `place`, which have the same records, from now on. Flushes must be paused, too.

        Watchers and producers are not affected. A reader with the old list of segments can go on while the old files
        are open or still have their names. After that, it finds that the list has changed, and repeats the look-up.
        """
        self.flusher.moved()
        self.env, self.directory = place.env, place.directory
        self.leader_epochs, self.snapshots = place.leader_epochs, place.snapshots
        with self._high_watermark_lock:
            self.end = place.end
        self.segments = place.segments  # after the end: see `snapshot`
        self.recovery_point = place.recovery_point
        self._watch_indexes(place.segments)

    def flushed_locked(self, offset: int) -> None:
        """Move the recovery point up to `offset`, but not above the end offset, which a truncation may have lowered."""
        self.recovery_point = max(self.recovery_point, min(offset, self.end[0]))

    def move_recovery_point_back(self, offset: int) -> None:
        """Lower the recovery point to `offset`, so that records from there on count as not flushed."""
        with self.lock:
            self.recovery_point = min(self.recovery_point, offset)

    # --- topic id, leader epochs, settings, producers

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic id (16 bytes) to partition.metadata, unless the log has a topic id already.

        Raises KafkaError INCONSISTENT_TOPIC_ID if the log has another topic id, and LogDirFailure.
        """
        self.check_topic_id(topic_id)
        with self.lock:
            if self.topic_id is not None:
                return
            try:
                partition_metadata.write_topic_id(self.env.files, self.directory, topic_id)
            except OSError as error:
                raise self.disk_error("writing partition.metadata", error) from error
            self.topic_id = topic_id

    def check_topic_id(self, topic_id: bytes) -> None:
        """Raise KafkaError INCONSISTENT_TOPIC_ID if the log belongs to a topic of the same name with another id."""
        if self.topic_id is not None and self.topic_id != topic_id:
            raise KafkaError(
                Errors.INCONSISTENT_TOPIC_ID,
                f"{self.directory} belongs to topic id {self.topic_id.hex()}, not {topic_id.hex()}",
            )

    def assign_leader_epoch(self, epoch: int) -> int:
        """Begin leader epoch `epoch` at the end of the log, and refuse appends of earlier leader epochs from now on.

        Return the log end offset at which the leader epoch begins.

        In message formats 0 and 1, whose batches have no leader epoch, nothing is written to the leader epoch
        checkpoint. Raises KafkaError NOT_LEADER_OR_FOLLOWER if a later epoch has begun, and LogDirFailure.
        """

        def begin() -> int:
            self.check_writer(epoch)
            start = self.end[0]
            if self.config.record_magic >= 2:
                self.leader_epochs.assign(epoch, start)
            self._fence_locked(epoch)
            return start

        return self.changed("writing a leader epoch of", begin)

    def fence(self, leader_epoch: int) -> None:
        """Refuse appends of epochs earlier than `leader_epoch` from now on, including appends that are already queued.

        Leaders of earlier epochs cannot move the high watermark any more, either.
        """
        with self.lock:
            self._fence_locked(leader_epoch)

    def _fence_locked(self, leader_epoch: int) -> None:
        with self._high_watermark_lock:
            self._writer_epoch = max(self._writer_epoch, leader_epoch)

    def check_writer(self, leader_epoch: int) -> None:
        """Raise KafkaError if the log is closed, or an epoch later than `leader_epoch` has begun.

        Called with the lock held.
        """
        if self.closed:
            self.check_open()
        if leader_epoch < self._writer_epoch:
            raise KafkaError(
                Errors.NOT_LEADER_OR_FOLLOWER,
                f"leader epoch {leader_epoch} of {self.name} is over: {self._writer_epoch} has begun",
            )

    def update_config(self, config: LogConfig) -> None:
        """Use new topic settings from the next append on. May wait for the disk if the message format changes."""
        before, self.config = self.config.record_magic, config
        self.rules = rules_of(config, self.env.max_decompressed)
        self.env.on_flush_ms(config.flush_ms)
        future = self.future
        if future is not None:
            future.update_config(config)
        if config.record_magic < before:
            _log.warning("%s: the message format goes back from %d to %d", self.name, before, config.record_magic)
        if config.record_magic < 2 <= before:
            try:
                self.changed("removing the leader epochs of", self.leader_epochs.discard)
            except KafkaError as error:
                _log.error("%s", error.message)

    def begin_verification(self, producer_id: int, sequence: int, epoch: int) -> int:
        """Begin to verify a producer's transaction (KIP-890), and return the guard of the verification.

        Return NO_GUARD if the transaction is already open in the log, so that the transaction coordinator need not
        confirm it before an append. See Verifications.begin. Does not wait for a disk, because the log's lock is not
        taken.
        """
        state = self.producers
        return state.verifications.begin(producer_id, sequence, epoch, self.clock.time_ms(), state.is_open)

    def active_producers(self) -> list[ActiveProducer]:
        with self.lock:
            return [
                ActiveProducer(
                    one.producer_id,
                    one.epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.coordinator_epoch,
                    one.txn_first_offset,
                )
                for one in self.producers.producers.values()
            ]

    def expire_producers(self) -> None:
        with self.lock:
            self.producers.expiration_ms = self.env.producer_expiration_ms
            self.producers.expire(self.clock.time_ms())
            forgotten, self.producers.evicted = self.producers.evicted, 0
        if forgotten:
            _log.warning("%s: %d producers were forgotten to make room for others", self.name, forgotten)

    # --- append

    def append(
        self, sets: Sequence[Records], leader_epoch: int, *, blocking: bool = True, flush: bool = True
    ) -> list[Verdict] | Busy:
        """Append record sets of one batch each.

        Return for each set, in order, an AppendResult or the KafkaError that refuses it.

        The sets must be writable, as offsets and, with LogAppendTime, timestamps are written into them. They are not
        needed after the call. With `blocking=False`, returns BUSY without any change if the lock is taken, the
        validation may take long (see `is_long_work`), or a new segment, a new leader epoch or a flush is due; only
        after a race or with unusual timestamps may such a call still create a segment. With `flush=False`, the caller
        must call `flush` before it responds to producers if `is_flush_due`. Raises LogDirFailure; every other error is
        returned for the sets that it affects.
        """
        if self.env.failure is not None:
            self.env.check()
        now_ms = self.clock.time_ms()
        rules = self.rules
        append = Append(self, sets, leader_epoch, now_ms, now_ms if rules.stamps else -1)
        if not blocking and (rules.older or any_older(sets) or self.lock.locked() or append.would_wait()):
            return BUSY
        verdicts = append.verdicts
        try:
            while len(verdicts) < len(sets):
                batches = rules.validate(sets, len(verdicts), now_ms)
                # Another thread may have taken the lock during the validation. Then a non-blocking call returns BUSY,
                # and its caller repeats the call. Two cases wait for the lock instead: sets whose timestamps were
                # already overwritten (LogAppendTime) cannot be validated twice, and after a first write BUSY would be
                # wrong, as something has happened.
                if not self.lock.acquire(blocking=blocking or rules.stamps or bool(verdicts)):
                    return BUSY
                try:
                    self.check_writer(leader_epoch)
                    append.write(batches)
                except OSError as error:
                    raise self.disk_error(f"appending to {self.name}", error) from error
                finally:
                    self.lock.release()
                batches.clear()  # before the next ones are validated: they may take much memory
        except LogDirFailure:
            raise
        except KafkaError as refusal:
            verdicts += [refusal.as_value()] * (len(sets) - len(verdicts))
        if flush and self.is_flush_due:
            try:
                self.flush()
            except LogDirFailure:
                raise
            except KafkaError as refusal:
                return [refusal] * len(sets)
        return verdicts

    def append_as_follower(self, data: memoryview, leader_epoch: int, *, blocking: bool = True) -> Followed | Busy:
        """Append what a follower has fetched in `leader_epoch`: whole batches, with their offsets and leader epochs.

        With `blocking=False`, returns BUSY without any change if the lock is taken, or if a new segment, a new leader
        epoch or a read from the disk is due. Does not flush: see `is_flush_due`. Raises KafkaError CORRUPT_MESSAGE for
        a damaged batch, after the batches before it were written, NOT_LEADER_OR_FOLLOWER if a later leader epoch has
        begun, UnexpectedOffset if a batch begins below the log end offset, and LogDirFailure.
        """
        self.env.check()
        if not self.lock.acquire(blocking=blocking):
            return BUSY
        try:
            self.check_writer(leader_epoch)
            return write_followed(self, data, leader_epoch, blocking)
        except OSError as error:
            raise self.disk_error(f"appending to {self.name}", error) from error
        finally:
            self.lock.release()

    def is_long_work(self, sets: Sequence[Records]) -> bool:
        """Return True if a set may have to be converted or recompressed. A malicious set can make this take seconds."""
        return self.rules.older or any_older(sets)

    @property
    def is_flush_due(self) -> bool:
        """Return True if acknowledgements must wait for a flush: at least flush.messages records are not flushed."""
        return self.end[0] - self.recovery_point >= self.config.flush_messages

    # --- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool = False,
        cut: bool = False,
        max_offset: int,
        blocking: bool = True,
    ) -> ReadResult | Busy:
        """Return a region of at most `max_bytes` that begins with the batch of `offset` and ends before `max_offset`.

        The region is in a ReadResult. As in Kafka, it begins with the whole batch even if `offset` is inside that
        batch, may end inside a batch, and never extends into the next segment. If the first batch is larger than
        `max_bytes`, there is no region and `first_entry_incomplete` is set; with `min_one` that batch is returned
        whole, with `cut` as much of it as fits. With `blocking=False`, returns BUSY if the position has to be read from
        the disk. Raises LogDirFailure, and KafkaError OFFSET_OUT_OF_RANGE if `offset` is below the log start offset or
        above the end offset.
        """
        if self.env.failure is not None:
            self.env.check()
        while True:
            segments, env = self.segments, self.env
            try:
                return log_reader.read(self, offset, max_bytes, min_one, cut, max_offset, not blocking)
            except BlockingIOError:
                return BUSY
            except OSError as error:
                self._check_still_there(f"reading {self.name} at offset {offset}", error, segments, env)

    def down_convert(self, region: FileRegion, magic: int, first_offset: int) -> DownConversion | None:
        """Return the conversion of a region for a client that knows formats up to `magic`, None if it needs none.

        `first_offset`: the offset at which the region was read. May wait for the disk, here and in DownConversion.make.
        Raises LogDirFailure and the errors of DownConversion.
        """
        from kafkapy.log.reading.down_conversion import (  # rarely needed: not imported at every start
            Chunks,
            DownConversion,
        )

        doing = f"converting {self.name} from offset {first_offset}"
        limit = self.env.max_decompressed

        def look() -> DownConversion | None:
            known = Chunks(region).all_known(magic)
            return None if known else DownConversion(region, magic, first_offset, limit)

        return self._looked_up(doing, look)

    def _looked_up(self, doing: str, look: Callable[[], _T]) -> _T:
        """Return the result of `look`, which reads the log's files without the lock.

        `doing` names the operation in errors. Raises LogDirFailure, KafkaError.
        """
        while True:
            segments, env = self.segments, self.env  # the log may move to another directory meanwhile
            try:
                return look()
            except BlockingIOError:
                raise
            except OSError as error:
                self._check_still_there(doing, error, segments, env)

    def _check_still_there(self, doing: str, error: OSError, segments: SegmentList, env: Environment) -> None:
        """Raise the error of a look-up in `segments` of the log, without the lock. Return if it should be repeated.

        Another thread may have deleted a segment or the whole log meanwhile. A segment leaves the list before its file
        is renamed. So if a file is missing and the list has changed, the look-up is repeated with the new list; if the
        list is the same, the disk has lost the file. Raises LogDirFailure, KafkaError.
        """
        if isinstance(error, FileNotFoundError):
            self.check_open()
            if self.segments is not segments:
                return
        raise env.disk_error(doing, error) from error

    def aborted_transactions(
        self, offset: int, read: ReadResult, *, blocking: bool = True
    ) -> list[tuple[int, int]] | Busy:
        """Return (producer id, first offset) of the aborted transactions in the region that was `read` at `offset`.

        The result may include transactions that begin shortly after the region. Returns BUSY and raises errors as
        `read` does.
        """
        try:
            return self._looked_up(
                f"looking for aborted transactions of {self.name} at offset {offset}",
                lambda: log_reader.aborted_transactions(self, offset, read, not blocking),
            )
        except BlockingIOError:
            return BUSY

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record with this timestamp (milliseconds) or a later one, None if there is none.

        See time_lookup.offset_for_timestamp. May wait for the disk. Raises LogDirFailure, KafkaError (CORRUPT_MESSAGE).
        """
        return self._searched(time_lookup.offset_for_timestamp, timestamp)

    def offset_of_max_timestamp(self, end_offset: int) -> TimestampOffset | None:
        """Return the record below `end_offset` with the largest timestamp, None if no record there has a timestamp.

        If several records have that timestamp, the first is returned. See time_lookup.offset_of_max_timestamp. May wait
        for the disk. Raises LogDirFailure, KafkaError (CORRUPT_MESSAGE).
        """
        return self._searched(time_lookup.offset_of_max_timestamp, end_offset)

    def offsets_before(self, timestamp: int, count: int) -> list[int]:
        """Return up to `count` base offsets, newest first, of segments last written at `timestamp` (ms) or before.

        See time_lookup.offsets_before. May wait for the disk. Raises LogDirFailure, KafkaError.
        """
        self.env.check()
        doing = f"searching {self.name} by time"
        return self._looked_up(doing, lambda: time_lookup.offsets_before(self, timestamp, count))

    def _searched(self, search: Callable[..., TimestampOffset | None], *arguments: int) -> TimestampOffset | None:
        self.env.check()
        doing = f"searching {self.name} by time"
        try:
            return self._looked_up(doing, lambda: search(self, *arguments))
        except ValueError as error:
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"{doing}: {error}") from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest known leader epoch up to `epoch`, end offset of that epoch).

        See LeaderEpochCache.end_offset_for. Both values are -1 if `epoch` is above the latest epoch, or no epoch is
        known.
        """
        return self.leader_epochs.end_offset_for(epoch, self.end[0])

    # --- changes

    def notify_watchers(self) -> None:
        """Call every watcher, after a change of the log start offset, the high watermark or the last stable offset.

        Any thread may call this method, without holding the lock: after an append the thread that moves the high
        watermark, after other changes the thread that runs `changed`. Other threads may add and remove watchers
        meanwhile, because copying the keys is atomic.
        """
        for watcher in list(self.watchers):
            watcher.changed()

    def notify_end_watchers(self) -> None:
        """Call every watcher of the log's end, after records were appended or the log was truncated. Like
        `notify_watchers`, it is called on any thread and without the lock.
        """
        for watcher in list(self.end_watchers):
            watcher.end_moved()

    def changed(self, doing: str, change: Callable[[], _T]) -> _T:
        """Call `change` with the lock held, then the watchers, and return the result of `change`.

        Raises KafkaError if the log is closed. An OSError of `change` is raised as LogDirFailure, or as Shortage;
        `doing` names the operation in the message.
        """
        self.env.check()
        try:
            with self.lock:
                self.check_open()
                try:
                    return change()
                except OSError as error:
                    raise self.disk_error(f"{doing} {self.name}", error) from error
        finally:  # a change that failed may be partly made
            if self.watchers:
                self.notify_watchers()

    def check_open(self) -> None:
        if self.closed:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} is closed: deleted, or the broker stops")

    def disk_error(self, doing: str, error: OSError) -> KafkaError:
        """Return the exception to raise for an OSError, and take the log directory offline unless it is a shortage.

        `doing` names the failed operation. See Environment.disk_error.
        """
        return self.env.disk_error(doing, error)

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises LogDirFailure, or KafkaError (disk full)."""
        self.changed("rolling", self.roll_locked)

    def _rolled_at(self, offset: int) -> None:
        """Log that a new segment begins at `offset`, and flush the segments before it.

        Runs in the background, so that an append does not wait for the sync.
        """
        _log.info("%s: new segment at offset %d", self.name, offset)
        self.flusher.flush_to(offset, active=False)

    def _repair_later(self, segment: Segment) -> None:
        self.env.later(f"rebuild the indexes of {segment}", lambda: repair_indexes(self, segment))

    def flush(self) -> None:
        """Make all appended records durable. Concurrent calls share one sync.

        Raises LogDirFailure, or KafkaError (a shortage).
        """
        self.flusher.flush_to(self.end[0], active=True)

    def delete_records(self, offset: int) -> None:
        """Move the log start offset up to `offset`. Retention deletes the segments below it later.

        Raises KafkaError OFFSET_OUT_OF_RANGE if `offset` is above the high watermark, and LogDirFailure.
        """

        def move() -> None:
            if offset > self.high_watermark:
                raise KafkaError(
                    Errors.OFFSET_OUT_OF_RANGE,
                    f"{self.name} cannot begin at {offset}: its high watermark is {self.high_watermark}",
                )
            self.move_start_locked(offset)

        self.changed("moving the start of", move)

    def follow_log_start(self, offset: int, leader_epoch: int) -> None:
        """Move the log start offset of a follower up to `offset`, the leader's, but not above the high watermark.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER if an epoch later than `leader_epoch` has begun, and LogDirFailure.
        """

        def move() -> None:
            self.check_writer(leader_epoch)
            self.move_start_locked(min(offset, self.high_watermark))

        self.changed("moving the start of", move)

    def delete_old_segments(self, policy: RetentionPolicy | None = None) -> int:
        """Delete old segments as `policy`, or else the log's own retention policy, demands.

        Return the number of deleted segments, which is 0 while the log is being compacted. Raises LogDirFailure, or
        KafkaError (disk full).
        """
        chosen = policy or self.retention
        if not self.upkeep.try_begin():
            return 0
        try:
            return self.changed("deleting segments of", lambda: cleanup.delete_old_segments(self, chosen))
        finally:
            self.upkeep.end()

    def truncate_to(self, offset: int, leader_epoch: int | None = None) -> bool:
        """Remove the records from `offset` on. Return True if there were any.

        Raises LogDirFailure, even for a shortage that leaves the log half truncated, and Shortage only if the log is
        unchanged. Raises KafkaError if the log is closed, and NOT_LEADER_OR_FOLLOWER if an epoch later than
        `leader_epoch` has begun.
        """

        def cut() -> bool:
            if leader_epoch is not None:
                self.check_writer(leader_epoch)
            return cleanup.truncate_to(self, offset)

        with self.upkeep.interrupting(), self._truncating_future(lambda future: future.truncate_to(offset)):
            self._lower_cleaned(offset)
            return self.changed("truncating", cut)

    def truncate_fully(self, offset: int, leader_epoch: int | None = None) -> None:
        """Remove all records. The log then begins and ends at `offset`. Raises the errors of `truncate_to`."""

        def empty() -> None:
            if leader_epoch is not None:
                self.check_writer(leader_epoch)
            cleanup.truncate_fully(self, offset)

        with self.upkeep.interrupting(), self._truncating_future(lambda future: future.truncate_fully(offset)):
            self._lower_cleaned(offset)
            self.changed("truncating", empty)

    @contextmanager
    def _truncating_future(self, truncate: Callable[[PartitionLog], object]) -> Iterator[None]:
        """Truncate the log's copy in another directory, if there is one, before this log is truncated in the `with`
        block.

        While the block runs, nothing is copied: else a record that is about to be removed could get into the copy. The
        copy is truncated first, so that after a crash in between it has no records that this log lacks.
        A copy that cannot be truncated is closed, which ends the move: the thread that copies then removes it.
        """
        future = self.future
        if future is None or future.closed:
            yield
            return
        with future.upkeep.interrupting():
            try:
                truncate(future)
            except KafkaError as error:  # its disk has failed or is full: this log must not suffer
                _log.error("%s is not moved to %s: %s", self.name, future.env.log_dir, error.message)
                future.abandon()
            yield

    def _lower_cleaned(self, offset: int) -> None:
        """Lower the log's offset in cleaner-offset-checkpoint to `offset` at most, before a truncation to `offset`.

        Records that are appended after the truncation are not compacted yet. The checkpoint is lowered first, so that
        no crash can leave it too high. Also done for a log that is not compacted: the log may have been compacted
        before, and may be again.
        """
        self.changed("truncating", lambda: self.env.cleaner_offsets.lower((self.topic, self.partition), offset))

    def finish(self) -> None:
        """Begin a clean close: take no more appends, and write what is only in memory to the files, without a sync: a
        producer snapshot and the last index entries. Idempotent.

        Raises LogDirFailure, or KafkaError for a full disk.
        """
        with self.flusher.paused():  # the flush in progress ends before, so that its failure is known
            self.env.check()
            with self.lock:
                if self.closed:
                    return
                self.closed = True
                active = self.segments.active
                try:
                    snapshot = take_snapshot(self.producers, self.snapshots, sync=False)
                    if snapshot is not None:
                        self.flusher.sync_snapshot_later(snapshot)
                    # Most logs were not written to since they were loaded, and need no sync.
                    if active.growing or self.flusher.has_pending:
                        active.seal()
                except OSError as error:
                    raise self.disk_error(f"closing {self.name}", error) from error

    def close(self, *, is_synced: bool = False) -> None:
        """Close the log for a clean shutdown: `finish` it, and make everything durable. Idempotent.

        `is_synced`: the whole file system was synced after `finish`. Raises LogDirFailure, or KafkaError for a full
        disk.
        """
        self.finish()
        if not self.abandoned:
            self.flusher.end(is_synced=is_synced)
        with self.lock:
            for segment in self.segments.made:
                segment.release()

    def abandon(self) -> None:
        """Close the log's files without writing anything, because the log is deleted or its directory is offline."""
        with self.upkeep.interrupting(), self.lock:
            self.closed = self.abandoned = True
            self.leader_epochs.close()
            for segment in self.segments:
                segment.retire()
                segment.part()
