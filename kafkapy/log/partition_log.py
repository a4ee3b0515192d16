"""The log of one partition (Kafka's UnifiedLog over LocalLog): appends, reads, rolls, flushes, truncation.

Appends, rolls and everything that changes the list of segments hold `lock`; reads hold nothing and see the log as
of `end`, one tuple that is replaced when an append is complete. What may wait for a disk says so: a network thread
calls only `append(blocking=False)`, `read(blocking=False)` and what is plain memory.

Lock order: flush lock, then lock, then the leader epochs' own. An OSError takes the log directory offline and is
raised as LogDirFailure, which from then on everything raises; a shortage (full disk, too many open files) is only a
KafkaError.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kafkapy._ext.validation import ValidatedBatch
from kafkapy.errors import Errors, KafkaError
from kafkapy.log import cleanup, log_reader, names, partition_metadata, time_lookup
from kafkapy.log.append_rules import AppendRules
from kafkapy.log.appender import Append, Verdict
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.flushing import Flusher
from kafkapy.log.loader import LoadedLog, Loader
from kafkapy.log.producer_rebuild import take_snapshot
from kafkapy.log.results import BUSY, ActiveProducer, AppendResult, Busy, ReadResult, TimestampOffset
from kafkapy.log.retention import KafkaRetention, RetentionPolicy
from kafkapy.log.segment import Segment
from kafkapy.log.segment_list import SegmentList
from kafkapy.record.file_region import FileRegion

__all__ = ["BUSY", "CLIENT", "COORDINATOR", "AppendResult", "PartitionLog", "ReadResult"]

# Where an append comes from: a client's batches are checked against their producer's sequence, a coordinator's not.
CLIENT = 0
COORDINATOR = 1

_NEVER = (1 << 63) - 1
_MAX_TIMESTAMP = struct.Struct(">35xq")
_COUNT = struct.Struct(">57xi")

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class PartitionLog:
    """Made by `load`. Offsets are those of Kafka: the end offset is that of the next record."""

    def __init__(
        self, env: Environment, directory: str, topic: str, partition: int, config: LogConfig, loaded: LoadedLog
    ) -> None:
        self.env = env
        self.clock = env.clock
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = names.dir_name(topic, partition)
        self.topic_id: bytes | None = None
        self.config = config
        self.lock = threading.Lock()
        self.segments = loaded.segments
        self.leader_epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        active = loaded.segments.active
        self.end: tuple[int, Segment, int] = (loaded.end_offset, active, active.size)
        self.starts = log_reader.Starts()
        self.flusher = Flusher(self)
        self.retention: RetentionPolicy = KafkaRetention()
        self.closed = False
        self._limit: tuple[int, tuple[Segment, int]] | None = None
        self._rules = AppendRules(config)

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
    ) -> PartitionLog:
        """Opens a directory, or makes it. `clean`: no recovery is needed. May take long.

        `topic_id` (16 bytes) goes to partition.metadata where there is none yet; another one than there raises
        KafkaError INCONSISTENT_TOPIC_ID. Raises OSError, and what Loader and partition_metadata raise.
        """
        env.files.make_dir(directory)
        found_id = partition_metadata.read_topic_id(env.files, directory)
        loader = Loader(
            env, directory, config, clean=clean, log_start_offset=log_start_offset, recovery_point=recovery_point
        )
        log = cls(env, directory, topic, partition, config, loader.load())
        log.topic_id = found_id
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.name}, offsets {self.log_start_offset} to {self.log_end_offset}, {self.directory})"

    # --- what it holds

    @property
    def dir(self) -> Path:
        return Path(self.directory)

    @property
    def log_end_offset(self) -> int:
        return self.end[0]

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided (and the decision replicated); never above the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    def set_high_watermark(self, offset: int) -> None:
        """Moves it, up or down, within the log."""
        offset = max(min(offset, self.end[0]), self.log_start_offset)
        if offset != self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable_offset is not None:
                with self.lock:
                    self.producers.high_watermark_moved(offset)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Writes partition.metadata if there is none; raises KafkaError if the log has another id."""
        if self.topic_id is None:
            try:
                partition_metadata.write_topic_id(self.env.files, self.directory, topic_id)
            except OSError as error:
                raise self.disk_error("writing partition.metadata", error) from error
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise KafkaError(
                Errors.INCONSISTENT_TOPIC_ID,
                f"{self.directory} belongs to topic id {self.topic_id.hex()}, not {topic_id.hex()}",
            )

    def assign_leader_epoch(self, epoch: int) -> None:
        """This broker leads in a new epoch, which begins at the end of the log. Raises LogDirFailure, KafkaError."""
        self._changed("noting a leader epoch of", lambda: self.leader_epochs.assign(epoch, self.end[0]))

    def update_config(self, config: LogConfig) -> None:
        self._rules = AppendRules(config)
        self.config = config

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
            self.producers.expire(self.clock.time_ms())

    # --- append

    def append(
        self,
        sets: Sequence[memoryview],
        leader_epoch: int,
        *,
        origin: int = CLIENT,
        blocking: bool = True,
        zstd_allowed: bool = True,
    ) -> list[Verdict] | Busy:
        """Appends produced record sets, each one batch, each with its own verdict, in order.

        The views must be writable: offsets, and where the topic wants it timestamps, are written into them. They
        are not needed after the call. With `blocking=False` the answer is BUSY, and nothing has happened, if the
        lock is taken or a new segment, a new leader epoch or a flush is due; the call then makes a new segment
        only if a race or odd timestamps make it necessary after all. Raises LogDirFailure; every other refusal is a
        verdict.
        """
        self.env.check()
        now_ms = self.clock.time_ms()
        if not blocking and (self.lock.locked() or self._would_wait(sets, leader_epoch, now_ms)):
            return BUSY
        validate = self._rules.validate
        batches = [validate(records, now_ms, zstd_allowed) for records in sets]
        try:
            verdicts = self._append(batches, leader_epoch, now_ms, origin == CLIENT)
            if self.end[0] - self.recovery_point >= self.config.flush_messages:
                self.flush()
        except LogDirFailure:
            raise
        except KafkaError as refusal:
            return [refusal] * len(sets)
        return verdicts

    def _append(
        self, batches: list[ValidatedBatch | KafkaError], leader_epoch: int, now_ms: int, check_sequences: bool
    ) -> list[Verdict]:
        with self.lock:
            self._check_open()
            try:
                if leader_epoch != self.leader_epochs.latest_epoch:
                    self.leader_epochs.assign(leader_epoch, self.end[0])
                return Append(self, leader_epoch, now_ms, check_sequences).run(batches)
            except OSError as error:
                raise self.disk_error(f"appending to {self.name}", error) from error

    def _would_wait(self, sets: Sequence[memoryview], leader_epoch: int, now_ms: int) -> bool:
        """A guess before anything is validated: it looks at sizes and at the last set's largest timestamp."""
        segment, config = self.end[1], self.config
        filled = segment.size
        if (
            leader_epoch != self.leader_epochs.latest_epoch
            or filled > config.segment_bytes - sum(map(len, sets))
            or segment.entries_left() <= len(sets)
        ):
            return True
        last = sets[-1] if sets else b""
        if filled and len(last) >= _MAX_TIMESTAMP.size:
            first = segment.first_timestamp()
            waited = _MAX_TIMESTAMP.unpack_from(last)[0] - first if first >= 0 else now_ms - segment.created_ms
            if waited > config.max_segment_ms - segment.roll_jitter_ms:
                return True
        if config.flush_messages != _NEVER:
            count = sum(_COUNT.unpack_from(one)[0] for one in sets if len(one) >= _COUNT.size)
            unflushed: int = self.end[0] + count - self.recovery_point
            return unflushed >= config.flush_messages
        return False

    def appended(self, first_offset: int, position: int, end_offset: int) -> None:
        """Called by Append: the active segment has the records up to `end_offset`, readers may see them."""
        segment = self.segments.active
        self.starts.note(first_offset, segment, position)
        self.end = (end_offset, segment, segment.size)

    def roll(self) -> None:
        """Begins a new segment, unless the active one is empty. Raises LogDirFailure, or KafkaError (disk full)."""
        self._changed("rolling", self.roll_locked)

    def roll_locked(self) -> None:
        """Raises OSError, and then the old segment is still the active one."""
        old, end_offset = self.segments.active, self.end[0]
        if old.size == 0 and old.base_offset == end_offset:
            return
        old.seal(trim_log=self.config.preallocate)
        try:
            new = Segment.create(self.env.files, self.directory, end_offset, self.config, self.clock)
            self.producers.end_offset = end_offset
            snapshot = take_snapshot(self.producers, self.snapshots, sync=False)
        except OSError:
            Segment(self.env.files, self.directory, end_offset, self.config, self.clock).delete()
            old.make_active()
            raise
        if snapshot is not None:
            self.flusher.sync_later(snapshot)
        self.segments = self.segments.with_added(new)
        self.end = (end_offset, new, 0)
        self.env.later(f"flush {self.name}", lambda: self._rolled_at(end_offset))

    def _rolled_at(self, offset: int) -> None:
        """In the background: an append waits neither for the sync nor for the log line."""
        _log.info("%s: new segment at offset %d", self.name, offset)
        self.flusher.flush_to(offset, active=False)

    # --- read

    def read(
        self, offset: int, max_bytes: int, *, min_one: bool = False, max_offset: int, blocking: bool = True
    ) -> ReadResult | Busy:
        """A region from the batch that holds `offset` on, at most `max_bytes`, ending before `max_offset`.

        As in Kafka the region begins with the whole batch, though `offset` may be inside it, it may end inside a
        batch, and it never reaches into the next segment. If the first batch alone is larger than `max_bytes`
        there is no region and `first_entry_incomplete` is set; with `min_one` that batch is given whole.
        Raises KafkaError OFFSET_OUT_OF_RANGE below the log start or above the end offset, LogDirFailure.
        With `blocking=False` the answer is BUSY where finding the place would have to wait for the disk.
        """
        self.env.check()
        try:
            return log_reader.read(self, offset, max_bytes, min_one, max_offset, not blocking)
        except BlockingIOError:
            return BUSY
        except FileNotFoundError:
            return self._read_again(offset, max_bytes, min_one, max_offset)
        except OSError as error:
            raise self.disk_error(f"reading {self.name} at offset {offset}", error) from error

    def _read_again(self, offset: int, max_bytes: int, min_one: bool, max_offset: int) -> ReadResult:
        """A file had gone: deleted with its segment, which has then left the list, or with the whole log."""
        try:
            return log_reader.read(self, offset, max_bytes, min_one, max_offset, False)
        except OSError as error:
            self._check_open()
            raise self.disk_error(f"reading {self.name} at offset {offset}", error) from error

    def limit_place(self, offset: int) -> tuple[Segment, int] | None:
        """Where the last looked up high watermark or last stable offset lies, if it is this one."""
        limit = self._limit
        return limit[1] if limit is not None and limit[0] == offset else None

    def remember_limit(self, offset: int, place: tuple[Segment, int]) -> None:
        self._limit = (offset, place)

    def aborted_transactions(self, offset: int, region: FileRegion | None, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in `region`, read at `offset`."""
        return log_reader.aborted_transactions(self, offset, region, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See time_lookup. May wait for the disk; raises LogDirFailure, KafkaError (CORRUPT_MESSAGE)."""
        return self._searched(time_lookup.offset_for_timestamp, timestamp)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """See time_lookup. May wait for the disk; raises LogDirFailure, KafkaError (CORRUPT_MESSAGE)."""
        return self._searched(time_lookup.offset_of_max_timestamp)

    def _searched(self, search: Callable[..., TimestampOffset | None], *arguments: int) -> TimestampOffset | None:
        self.env.check()
        try:
            return search(self, *arguments)
        except OSError as error:
            raise self.disk_error(f"searching {self.name} by time", error) from error
        except ValueError as error:
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"searching {self.name} by time: {error}") from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to this one, (-1, -1) where the log cannot tell."""
        return self.leader_epochs.end_offset_for(epoch, self.end[0])

    # --- upkeep

    def flush(self) -> None:
        """Makes all that is appended durable. Callers at the same time share one sync. Raises LogDirFailure."""
        self.flusher.flush_to(self.end[0], active=True)

    def delete_records(self, offset: int) -> None:
        """Moves the log start offset up; segments below it are deleted later.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                Errors.OFFSET_OUT_OF_RANGE,
                f"{self.name} cannot begin at {offset}: its high watermark is {self.high_watermark}",
            )
        self._changed("moving the start of", lambda: self.move_start_locked(offset))

    def delete_old_segments(self, policy: RetentionPolicy | None = None) -> int:
        """Applies retention and returns how many segments went. Raises LogDirFailure, or KafkaError (disk full)."""
        chosen = policy or self.retention
        return self._changed("deleting segments of", lambda: cleanup.delete_old_segments(self, chosen))

    def truncate_to(self, offset: int) -> bool:
        """Removes the records from `offset` on; whether there were any. Raises LogDirFailure."""
        return self._changed("truncating", lambda: cleanup.truncate_to(self, offset))

    def truncate_fully(self, offset: int) -> None:
        """Removes all records; the log goes on at `offset`. Raises LogDirFailure."""
        self._changed("truncating", lambda: cleanup.truncate_fully(self, offset))

    def _changed(self, doing: str, change: Callable[[], _T]) -> _T:
        self.env.check()
        with self.lock:
            self._check_open()
            try:
                return change()
            except OSError as error:
                raise self.disk_error(f"{doing} {self.name}", error) from error

    def move_start_locked(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.recovery_point = max(self.recovery_point, offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)

    def set_segments_locked(self, segments: SegmentList, end_offset: int, end_position: int) -> None:
        """After anything but an append: readers see the new list, and nothing that was remembered of the old one."""
        self.segments = segments
        self.end = (end_offset, segments.active, end_position)
        self.starts.clear()
        self._limit = None
        self.recovery_point = min(self.recovery_point, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)

    def moved_to(self, directory: str) -> None:
        """The directory has been renamed."""
        with self.lock:
            self.directory = self.snapshots.directory = directory
            self.leader_epochs.moved_to(directory)
            for segment in self.segments:
                segment.directory = directory

    def close(self) -> None:
        """Flushes, writes a producer snapshot and trims the indexes: what a clean stop leaves. Idempotent."""
        if self.closed:
            return
        self.flush()
        with self.lock:
            self.closed = True
            try:
                take_snapshot(self.producers, self.snapshots)
                self.segments.active.seal(trim_log=self.config.preallocate)
                self.segments.active.sync()
            except OSError as error:
                raise self.disk_error(f"closing {self.name}", error) from error
            for segment in self.segments:
                segment.let_go()

    def abandon(self) -> None:
        """Closes the files and writes nothing: the log is deleted, or its directory is offline."""
        with self.lock:
            self.closed = True
            for segment in self.segments:
                segment.let_go()

    def _check_open(self) -> None:
        if self.closed:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} is closed: deleted, or the broker stops")

    def disk_error(self, doing: str, error: OSError) -> KafkaError:
        """See Environment.disk_error."""
        return self.env.disk_error(doing, error)
