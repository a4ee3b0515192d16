"""The part of an append after validation: check sequences, roll, assign offsets, write once, add index entries.

One append may take several record sets. Each set gets its own result and is indexed like an append of its own, but all
sets for one segment are written in one system call. A set of single messages of format 0 or 1 is indexed message by
message, as in Kafka since 3.9.1. Source: Kafka's UnifiedLog.append and LogSegment.append.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy._ext.batch import read_header
from kafkapy._ext.entry_walk import index_steps
from kafkapy._ext.validation import ValidatedBatch, assign
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.room import Room
from kafkapy.log.append.rules import OwnBatch, Records
from kafkapy.log.failures import is_shortage, no_memory
from kafkapy.log.producers.producer_updates import ProducerUpdates
from kafkapy.log.results import AppendResult
from kafkapy.log.retention.cleanup import undo_append
from kafkapy.log.segments.segment import Segment
from kafkapy.log.storage.files import Buffer
from kafkapy.record.control import control_record_of

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

Verdict = AppendResult | KafkaError

_NEVER = (1 << 63) - 1
_IN_USE_MS = 10_000  # for this long after an append, the end of the log is assumed to be in the page cache
_MAX_TIMESTAMP = struct.Struct(">35xq")
_COUNT = struct.Struct(">57xi")


class Append:
    """One append to a log, of any number of record sets.

    It is created before the log's lock is taken. `would_wait` reads the state of the log without the lock. `write` is
    called with the lock held, once or more often, each time with the next validated batches. For each record set it
    adds a verdict, which is an AppendResult or a KafkaError, to `verdicts`.

    Clients' batches and the broker's own batches get their offsets and leader epoch here (`assign` in `_take`). The
    batches that a follower fetches keep theirs and are not checked again: see `kafkapy.log.append.follower`.
    """

    __slots__ = (
        "_append_time",
        "_buffers",
        "_epoch",
        "_log",
        "_now_ms",
        "_pending",
        "_room",
        "_sets",
        "_updates",
        "verdicts",
    )

    _room: Room

    def __init__(
        self, log: PartitionLog, sets: Sequence[Records], leader_epoch: int, now_ms: int, append_time: int
    ) -> None:
        """Prepare an append of `sets` in this leader epoch.

        `append_time` is the time to return to producers: `now_ms` if the topic uses LogAppendTime, else -1.
        """
        self._log = log
        self._sets = sets
        self._epoch = leader_epoch
        self._now_ms = now_ms
        self._append_time = append_time
        self.verdicts: list[Verdict] = []

    def would_wait(self) -> bool:
        """Return True if the append would probably wait for a disk.

        Called before the validation, so the answer is based on the sizes of the sets and the largest timestamp of the
        last set.
        """
        log, sets = self._log, self._sets
        if self._epoch != log.leader_epochs.latest_epoch:
            return True
        room = log.room
        if room is None or not room.is_valid_for(log):
            segment = log.end[1]
            # The first append since the start loads the indexes and reads the first timestamp.
            if not segment.growing or (log.end[2] and segment.first_timestamp_in_memory is None):
                return True
            room = log.room = Room(log)
        last = sets[-1] if sets else b""
        timestamp = _MAX_TIMESTAMP.unpack_from(last)[0] if len(last) >= _MAX_TIMESTAMP.size else -1
        if not room.fits(sum(map(len, sets)), len(sets), timestamp, room.next_offset, self._now_ms):
            return True
        if self._now_ms - log.appended_ms > _IN_USE_MS:
            if not room.segment.ends_in_memory():
                return True
            log.appended_ms = self._now_ms
        if log.config.flush_messages != _NEVER:
            count = sum(_COUNT.unpack_from(one)[0] for one in sets if len(one) >= _COUNT.size)
            unflushed: int = room.next_offset + count - log.recovery_point
            return unflushed >= log.config.flush_messages
        return False

    def write(self, batches: Sequence[ValidatedBatch | KafkaError]) -> None:
        """Append the next validated batches to the log, and add a verdict for each of them to `verdicts`.

        A KafkaError in `batches` stands for a record set that failed validation, and becomes the verdict of that set.
        Called with the log's lock held. If the disk is full, the sets that were not written get an error as their
        verdict. Raises LogDirFailure, and OSError for any other disk error. After any exception the log ends where the
        last complete write ended.
        """
        log, verdicts = self._log, self.verdicts
        count = len(verdicts) + len(batches)
        log.write_seconds = 0.0
        # Batches that are waiting for the next write:
        self._buffers: list[Buffer] = []
        self._pending: list[tuple[ValidatedBatch, int]] = []  # (batch, its base offset)
        self._updates: ProducerUpdates | None = None  # created on first use: most appends change no producer state
        try:
            room = log.room
            if room is None or not room.is_valid_for(log):
                room = log.room = Room(log)
            self._room = room
            if self._epoch != log.leader_epochs.latest_epoch and log.config.record_magic >= 2:
                log.leader_epochs.assign(self._epoch, room.next_offset)
            for batch in batches:
                verdicts.append(self._take(batch) if isinstance(batch, ValidatedBatch) else batch)
            self._write()
        except OSError as error:
            log.room = None
            if not is_shortage(error):
                raise
            self._refuse_unwritten(count, error)
        except Exception as error:
            log.room = None
            undo_append(log, producers=self._updates is not None)
            if not isinstance(error, MemoryError):
                raise
            self._refuse_unwritten(count, no_memory())

    def _take(self, batch: ValidatedBatch) -> Verdict:
        """Assign offsets to a batch, add it to the next write, and return the batch's AppendResult.

        Return the AppendResult of the first append if the batch is a duplicate, and a KafkaError if it is refused; the
        batch is then not written.
        """
        room = self._room
        base_offset = room.next_offset
        last_offset = base_offset + batch.last_offset_delta
        has_producer = batch.producer_id >= 0
        check = has_producer and type(self._sets[len(self.verdicts)]) is not OwnBatch
        if check:
            before = self._producers().duplicate_of(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
            )
            if before is not None:
                start = self._log.log_start_offset
                return AppendResult(before.first_offset, before.last_offset, before.timestamp, start, True)
        try:
            # Assign offsets before using the size: a compressed set of format 0 contains its offsets, so it is only
            # built now.
            assign(batch, base_offset, self._epoch)
            entries = 1 if batch.magic >= 2 else self._entries_of(batch)
            if not room.fits(batch.size, entries, batch.max_timestamp, last_offset, self._now_ms):
                self._make_room(batch, entries, last_offset)
            if batch.is_control:
                self._end_transaction(batch, base_offset)
            elif has_producer:
                self._producers().add(
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.last_sequence,
                    base_offset,
                    last_offset,
                    batch.max_timestamp,
                    batch.is_transactional,
                    check=check,
                )
        except KafkaError as refusal:
            return refusal.as_value()
        self._buffers.append(batch.data)
        self._pending.append((batch, base_offset))
        self._room.add(batch.size, entries, batch.max_timestamp, last_offset)
        # AppendResult's constructor is Python code, and would take a thirtieth of the time of a small append.
        result = base_offset, last_offset, self._append_time, self._log.log_start_offset, False
        return tuple.__new__(AppendResult, result)

    def _producers(self) -> ProducerUpdates:
        """Return the changes to the producer state that take effect after the next write. Created on first use."""
        updates = self._updates
        if updates is None:
            log = self._log
            updates = self._updates = ProducerUpdates(log.producers, log.name, verifying=log.verifies_transactions)
        return updates

    def _end_transaction(self, batch: ValidatedBatch, base_offset: int) -> None:
        marker = control_record_of(batch.data, read_header(batch.data))
        if marker is None or marker.coordinator_epoch is None:
            raise KafkaError(Errors.INVALID_RECORD, f"a control batch for {self._log.name} is no transaction marker")
        self._producers().end(batch.producer_id, batch.producer_epoch, marker, base_offset, batch.max_timestamp)

    def _make_room(self, batch: ValidatedBatch, entries: int, last_offset: int) -> None:
        """Roll the log, unless the active segment has room for the batch after the waiting batches are written.

        Raises KafkaError if the batch is larger than a segment.
        """
        size, log = batch.size, self._log
        if size > self._room.segment_bytes:
            raise KafkaError(
                Errors.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes does not fit into a segment of {log.name} (segment.bytes "
                f"{self._room.segment_bytes})",
            )
        self._write()  # after the write the exact number of free index entries is known
        self._room = log.room = Room(log)
        if not self._room.fits(size, entries, batch.max_timestamp, last_offset, self._now_ms):
            log.roll_locked()
            self._room = log.room = Room(log)

    def _entries_of(self, batch: ValidatedBatch) -> int:
        """Return how many index entries a batch of format 0 or 1 may add."""
        if not _is_set(batch):
            return 1
        return min(batch.count, 1 + batch.size // (self._log.config.index_interval_bytes + 1))

    def _write(self) -> None:
        """Write all pending batches at once, then update the indexes, the producer state and the log's end.

        Raises OSError.
        """
        pending = self._pending
        if not pending:
            return
        log, room = self._log, self._room
        first_offset, segment, position = room.end
        began = time.monotonic()
        segment.write(self._buffers)
        log.write_seconds += time.monotonic() - began
        for batch, base_offset in pending:
            if batch.magic < 2 and _is_set(batch):
                _index_set(segment, batch, base_offset)
                continue
            segment.appended(
                batch.size,
                base_offset + batch.last_offset_delta,
                batch.max_timestamp,
                base_offset + batch.offset_delta_of_max_timestamp,
            )
        # Update the producer state before the log's end. As soon as the end moves, another thread may move the high
        # watermark, and a read_committed reader may read these records. By then an open transaction must hold back the
        # last stable offset, and an aborted transaction must be in the index.
        if self._updates is not None:
            for aborted in self._updates.apply():
                segment.txn_index.append(aborted)
        log.appended_locked(first_offset, position, room.next_offset)
        log.producers.end_offset = room.next_offset  # last: if the line before fails, the records are undone
        room.end = log.end
        self._buffers, self._pending = [], []

    def _refuse_unwritten(self, count: int, error: OSError) -> None:
        """Refuse the record sets that were not written for lack of disk space or memory, and their duplicates.

        The verdict of each of these sets becomes a KafkaError. `count` is how many verdicts there must be afterwards.
        """
        verdicts, written = self.verdicts, self._log.end[0]
        places = [at for at, one in enumerate(verdicts) if isinstance(one, AppendResult) and one.base_offset >= written]
        not_taken = count - len(verdicts)
        refusal = self._log.env.refuse(f"appending to {self._log.name}", error, len(places) + not_taken)
        for at in places:
            verdicts[at] = refusal
        verdicts.extend([refusal] * not_taken)


def _is_set(batch: ValidatedBatch) -> bool:
    """Return True if a batch of format 0 or 1 is several uncompressed messages, each of which is indexed separately."""
    return batch.codec == 0 and batch.count > 1


def _index_set(segment: Segment, batch: ValidatedBatch, base_offset: int) -> None:
    for size, count, timestamp, before in index_steps(batch.data, segment.index_interval, segment.bytes_since_entry):
        segment.appended(size, base_offset + count - 1, timestamp, base_offset + before)
        base_offset += count
