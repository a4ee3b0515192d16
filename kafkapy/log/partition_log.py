"""The log of one partition (Kafka's UnifiedLog over LocalLog): appends, reads, rolls, flushes, truncation.

What may wait for a disk says so: a network thread
calls only `append(blocking=False)`, `read(blocking=False)` and what is plain memory.

Lock order: flush lock, then lock, then the leader epochs' own. An OSError takes the log directory offline and is
raised as LogDirFailure, which from then on everything raises; a shortage (full disk, too many open files) is only a
KafkaError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkapy._ext.entry_walk import any_older
from kafkapy._ext.validation import ValidatedBatch
from kafkapy.errors import Errors, KafkaError
from kafkapy.log import cleanup, log_reader, time_lookup
from kafkapy.log.appender import Append, Verdict, append_plain, would_wait
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.load_progress import LoadWatch
from kafkapy.log.loader import Loader
from kafkapy.log.log_state import LogState
from kafkapy.log.partition_metadata import PartitionMetadataError
from kafkapy.log.producer_rebuild import take_snapshot
from kafkapy.log.results import BUSY, CLIENT, COORDINATOR, AppendResult, Busy, ReadResult, TimestampOffset
from kafkapy.log.retention import RetentionPolicy
from kafkapy.log.segment import MAX_RELATIVE_OFFSET
from kafkapy.record.file_region import FileRegion

if TYPE_CHECKING:
    from kafkapy.log.down_conversion import DownConversion

__all__ = ["BUSY", "CLIENT", "COORDINATOR", "AppendResult", "PartitionLog", "ReadResult"]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class PartitionLog(LogState):
    """Made by `load`. Offsets are those of Kafka: the end offset is that of the next record."""

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
        """Opens a directory, or makes it. `clean`: no recovery is needed. May take long, which `watch` is told of.

        `topic_id` (16 bytes) goes to partition.metadata where there is none yet; another one than there raises
        KafkaError INCONSISTENT_TOPIC_ID. Raises OSError.
        """
        loader = Loader(
            env,
            directory,
            config,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            watch=watch,
        )
        log = cls(env, directory, topic, partition, config, loader.load())
        try:
            log.topic_id = loader.topic_id()
        except PartitionMetadataError as reason:
            _log.warning("%s; the topic id is taken from the cluster", reason)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    # --- append

    def append(
        self,
        sets: Sequence[memoryview],
        leader_epoch: int,
        *,
        origin: int = CLIENT,
        blocking: bool = True,
        flush: bool = True,
        zstd_allowed: bool = True,
    ) -> list[Verdict] | Busy:
        """Appends produced record sets, each one batch, each with its own verdict, in order.

        The views must be writable: offsets, and where the topic wants it timestamps, are written into them. They
        are not needed after the call. With `blocking=False` the answer is BUSY, and nothing has happened, if the
        lock is taken or a new segment, a new leader epoch or a flush is due; the call then makes a new segment
        only if a race or odd timestamps make it necessary after all. Raises LogDirFailure; every other refusal is a
        verdict. With `flush=False` the caller has to `flush` before it tells the verdicts, if that `is_flush_due`.
        """
        self.env.check()
        now_ms = self.clock.time_ms()
        rules = self.rules
        if origin == COORDINATOR and not blocking and len(sets) == 1:
            try:
                verdict = self._append_own(sets[0], leader_epoch, now_ms)
            except LogDirFailure:
                raise
            except KafkaError as refusal:
                return [refusal.as_value()]
            if verdict is not None:
                return [verdict]
        older = rules.older or any_older(sets)
        if not blocking and (older or self.lock.locked() or would_wait(self, sets, leader_epoch, now_ms)):
            return BUSY
        verdicts: list[Verdict] = []
        try:
            for batches in rules.validate_all(sets, now_ms, zstd_allowed, older, origin):
                # Validation takes a while, and others may have taken the lock meanwhile. Sets that were stamped with
                # the time of the append could not be validated again.
                stamped = self.config.message_timestamp_type == "LogAppendTime"
                if not self.lock.acquire(blocking=blocking or stamped or bool(verdicts)):
                    return BUSY
                try:
                    verdicts += self._append_locked(batches, leader_epoch, now_ms, origin == CLIENT)
                finally:
                    self.lock.release()
                batches.clear()
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

    def is_long_work(self, sets: Sequence[memoryview]) -> bool:
        """Whether these sets may have to be converted, or compressed anew: that takes seconds for a hostile one."""
        return self.rules.older or any_older(sets)

    @property
    def is_flush_due(self) -> bool:
        """Whether acknowledgements wait for a flush: flush.messages records, or more, are not flushed."""
        return self.end[0] - self.recovery_point >= self.config.flush_messages

    def _append_own(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendResult | None:
        """The short way of a coordinator's batch; None, and nothing has happened, where it has to go the long one."""
        batch = self.rules.own(records)
        if batch is None or batch.producer_id >= 0 or batch.is_control or not self.lock.acquire(blocking=False):
            return None
        try:
            self.check_open()
            fits = self.end[0] + batch.last_offset_delta <= self.end[1].base_offset + MAX_RELATIVE_OFFSET
            if not fits or would_wait(self, (records,), leader_epoch, now_ms):
                return None
            return append_plain(self, batch, leader_epoch)
        except OSError as error:
            raise self.disk_error(f"appending to {self.name}", error) from error
        finally:
            self.lock.release()

    def _append_locked(
        self, batches: list[ValidatedBatch | KafkaError], leader_epoch: int, now_ms: int, check_sequences: bool
    ) -> list[Verdict]:
        self.check_open()
        try:
            if leader_epoch != self.leader_epochs.latest_epoch and self.config.record_magic >= 2:
                self.leader_epochs.assign(leader_epoch, self.end[0])
            return Append(self, leader_epoch, now_ms, check_sequences).run(batches)
        except OSError as error:
            raise self.disk_error(f"appending to {self.name}", error) from error

    def roll(self) -> None:
        """Begins a new segment, unless the active one is empty. Raises LogDirFailure, or KafkaError (disk full)."""
        self.changed("rolling", self.roll_locked)

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
        """A region from the batch that holds `offset` on, at most `max_bytes`, ending before `max_offset`.

        As in Kafka the region begins with the whole batch, though `offset` may be inside it, it may end inside a
        batch, and it never reaches into the next segment. If the first batch alone is larger than `max_bytes`
        there is no region and `first_entry_incomplete` is set; with `min_one` that batch is given whole, with `cut`
        as much of it as is allowed.
        Raises KafkaError OFFSET_OUT_OF_RANGE below the log start or above the end offset, LogDirFailure.
        With `blocking=False` the answer is BUSY where finding the place would have to wait for the disk.
        """
        self.env.check()
        try:
            return self._looked_up(
                f"reading {self.name} at offset {offset}",
                lambda: log_reader.read(self, offset, max_bytes, min_one, cut, max_offset, not blocking),
            )
        except BlockingIOError:
            return BUSY

    def down_convert(self, region: FileRegion, magic: int, first_offset: int) -> DownConversion | None:
        """A region, read at `first_offset`, for a client that knows formats up to `magic`; None: as it is.

        May wait for the disk, here and in `make`. Raises LogDirFailure and what DownConversion does.
        """
        from kafkapy.log.down_conversion import Chunks, DownConversion  # rarely needed: not at the start

        doing = f"converting {self.name} from offset {first_offset}"
        limit = self.env.max_decompressed

        def look() -> DownConversion | None:
            known = Chunks(region).all_known(magic)
            return None if known else DownConversion(region, magic, first_offset, limit)

        return self._looked_up(doing, look)

    def _looked_up(self, doing: str, look: Callable[[], _T]) -> _T:
        """`look()`, which holds no lock: a file that it needs may go meanwhile, with its segment or with the log.

        A segment leaves the list before its file is renamed. So where a file is missing and the list has changed, the
        answer is in the new one; where it has not, the disk has lost the file. Raises LogDirFailure, KafkaError.
        """
        while True:
            segments = self.segments
            try:
                return look()
            except BlockingIOError:
                raise
            except FileNotFoundError as error:
                self.check_open()
                if self.segments is segments:
                    raise self.disk_error(doing, error) from error
            except OSError as error:
                raise self.disk_error(doing, error) from error

    def aborted_transactions(
        self, offset: int, read: ReadResult, *, blocking: bool = True
    ) -> list[tuple[int, int]] | Busy:
        """(producer id, first offset) of the aborted transactions among what was `read` at `offset`.

        There may be some that only begin right behind it. Answers and raises as `read`.
        """
        try:
            return self._looked_up(
                f"looking for aborted transactions of {self.name} at offset {offset}",
                lambda: log_reader.aborted_transactions(self, offset, read, not blocking),
            )
        except BlockingIOError:
            return BUSY

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See time_lookup. May wait for the disk; raises LogDirFailure, KafkaError (CORRUPT_MESSAGE)."""
        return self._searched(time_lookup.offset_for_timestamp, timestamp)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """See time_lookup. May wait for the disk; raises LogDirFailure, KafkaError (CORRUPT_MESSAGE)."""
        return self._searched(time_lookup.offset_of_max_timestamp)

    def offsets_before(self, timestamp: int, count: int) -> list[int]:
        """See time_lookup. May wait for the disk; raises LogDirFailure, KafkaError."""
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
        self.changed("moving the start of", lambda: self.move_start_locked(offset))

    def delete_old_segments(self, policy: RetentionPolicy | None = None) -> int:
        """Applies retention and returns how many segments went; none while the log is being cleaned.

        Raises LogDirFailure, or KafkaError (disk full).
        """
        chosen = policy or self.retention
        if not self.upkeep.try_begin():
            return 0
        try:
            return self.changed("deleting segments of", lambda: cleanup.delete_old_segments(self, chosen))
        finally:
            self.upkeep.end()

    def truncate_to(self, offset: int) -> bool:
        """Removes the records from `offset` on; whether there were any. Raises LogDirFailure."""
        with self.upkeep.interrupting():
            self._lower_cleaned(offset)
            return self.changed("truncating", lambda: cleanup.truncate_to(self, offset))

    def truncate_fully(self, offset: int) -> None:
        """Removes all records; the log goes on at `offset`. Raises LogDirFailure."""
        with self.upkeep.interrupting():
            self._lower_cleaned(offset)
            self.changed("truncating", lambda: cleanup.truncate_fully(self, offset))

    def _lower_cleaned(self, offset: int) -> None:
        """What comes in the place of records that are cut off is dirty: also after a crash in between.

        Of a log that is not compacted now, too: it may have been, and be again.
        """
        self.changed("truncating", lambda: self.env.cleaner_offsets.lower((self.topic, self.partition), offset))

    def close(self) -> None:
        """Flushes, writes a producer snapshot and trims the indexes: what a clean stop leaves. Idempotent."""
        if self.closed:
            return
        self.flush()
        with self.lock:
            self.closed = True
            active = self.segments.active
            try:
                snapshot = take_snapshot(self.producers, self.snapshots)
                # A broker has many logs that nobody has written to since they were loaded: they are as they were.
                if snapshot is not None or active.growing or not self.flusher.settled:
                    active.seal()
                    if active.preallocated or self.recovery_point < self.end[0]:  # else the flush has synced it
                        active.sync_records()
                    active.sync_indexes()
                    self.env.files.sync_dir(self.directory)  # the snapshot's name
            except OSError as error:
                raise self.disk_error(f"closing {self.name}", error) from error
            for segment in self.segments:
                segment.let_go()

    def abandon(self) -> None:
        """Closes the files and writes nothing: the log is deleted, or its directory is offline."""
        with self.upkeep.interrupting(), self.lock:
            self.closed = True
            self.leader_epochs.close()
            for segment in self.segments:
                segment.retire()
                segment.part()
