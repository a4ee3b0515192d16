"""The part of an append that holds the log's lock: sequence checks, rolls, offsets, one write, index entries.

One append may take several record sets. Each set gets its own verdict and is indexed like an append of its own, but all
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
from kafkapy.log.append.rules import OwnBatch, Records
from kafkapy.log.failures import is_shortage, no_memory
from kafkapy.log.producers.producer_updates import ProducerUpdates
from kafkapy.log.results import AppendResult
from kafkapy.log.retention.cleanup import undo_append
from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from kafkapy.log.storage.files import Buffer
from kafkapy.record.control import control_record_of

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

Verdict = AppendResult | KafkaError

_NEVER = (1 << 63) - 1
_IN_USE_MS = 10_000  # for this long after an append, the end of the log is assumed to be in the page cache
_MAX_TIMESTAMP = struct.Struct(">35xq")
_COUNT = struct.Struct(">57xi")


def would_wait(log: PartitionLog, sets: Sequence[Records], leader_epoch: int, now_ms: int) -> bool:
    """Return whether an append would probably wait for a disk, judged by sizes and the last set's largest timestamp."""
    segment, config = log.end[1], log.config
    filled = segment.size
    if (
        leader_epoch != log.leader_epochs.latest_epoch
        or not segment.growing
        or filled > config.segment_bytes - sum(map(len, sets))
        or segment.entries_left() <= len(sets)
    ):
        return True
    last = sets[-1] if sets else b""
    if filled and len(last) >= _MAX_TIMESTAMP.size:
        first = segment.first_timestamp_in_memory
        if first is None:
            return True  # the first append since the start, which has to read the timestamp from the disk
        waited = _MAX_TIMESTAMP.unpack_from(last)[0] - first if first >= 0 else now_ms - segment.created_ms
        if waited > config.max_segment_ms - segment.roll_jitter_ms:
            return True
    if now_ms - log.appended_ms > _IN_USE_MS:
        if not segment.ends_in_memory():
            return True
        log.appended_ms = now_ms
    if config.flush_messages != _NEVER:
        count = sum(_COUNT.unpack_from(one)[0] for one in sets if len(one) >= _COUNT.size)
        unflushed: int = log.end[0] + count - log.recovery_point
        return unflushed >= config.flush_messages
    return False


def append_batches(
    log: PartitionLog,
    batches: Sequence[ValidatedBatch | KafkaError],
    sets: Sequence[Records],
    leader_epoch: int,
    now_ms: int,
    append_time: int,
) -> list[Verdict]:
    """Append validated batches and return their verdicts, in order. Called with the log's lock held.

    `sets`: the record sets that the batches were made from. `append_time`: the time to return to producers, which is
    the append time if the topic uses LogAppendTime, else -1. Raises LogDirFailure, and OSError if the disk fails and is
    not just full. After any exception the log ends where the last complete write ended.
    """
    batch = batches[0]
    if len(batches) == 1 and isinstance(batch, ValidatedBatch) and _is_plain(log, batch):
        return [_append_plain(log, batch, leader_epoch, append_time)]
    return Append(log, leader_epoch, now_ms, append_time).run(batches, sets)


def _is_plain(log: PartitionLog, batch: ValidatedBatch) -> bool:
    """Return True if a batch changes no producer state and fits into the active segment without a disk read."""
    if batch.producer_id >= 0 or batch.magic != 2 or batch.is_control:
        return False
    segment, config = log.end[1], log.config
    first = segment.first_timestamp_in_memory
    return (
        0 < segment.size <= config.segment_bytes - batch.size
        and first is not None
        and first >= 0
        and batch.max_timestamp - first <= config.max_segment_ms - segment.roll_jitter_ms
        and segment.growing
        and segment.entries_left() > 0
        and log.end[0] + batch.last_offset_delta <= segment.base_offset + MAX_RELATIVE_OFFSET
    )


def _append_plain(log: PartitionLog, batch: ValidatedBatch, leader_epoch: int, append_time: int) -> AppendResult:
    """Append one batch for which `_is_plain` is true. Most appends are, so this avoids the bookkeeping of `Append`."""
    base_offset, segment, position = log.end
    last_offset = base_offset + batch.last_offset_delta
    assign(batch, base_offset, leader_epoch)
    began = time.monotonic()
    try:
        segment.write([batch.data])
        log.write_seconds = time.monotonic() - began
        offset_of_max = base_offset + batch.offset_delta_of_max_timestamp
        segment.appended(batch.size, last_offset, batch.max_timestamp, offset_of_max)
        log.appended_locked(base_offset, position, last_offset + 1)
    except OSError:
        raise
    except Exception as error:
        undo_append(log, producers=False)
        if not isinstance(error, MemoryError):
            raise
        raise no_memory() from error
    log.producers.end_offset = last_offset + 1
    return AppendResult(base_offset, last_offset, append_time, log.log_start_offset)


class Append:
    """One append of any number of batches, with the lock of `log` held. Call `run` once."""

    __slots__ = (
        "_append_time",
        "_buffers",
        "_bytes",
        "_created_ms",
        "_entries_left",
        "_entries_pending",
        "_epoch",
        "_filled",
        "_first_timestamp",
        "_last_possible",
        "_log",
        "_log_start",
        "_next",
        "_now_ms",
        "_patience_ms",
        "_pending",
        "_segment_bytes",
        "_updates",
        "_written",
    )

    def __init__(self, log: PartitionLog, leader_epoch: int, now_ms: int, append_time: int) -> None:
        self._log = log
        log.write_seconds = 0.0
        self._log_start = log.log_start_offset
        self._epoch = leader_epoch
        self._now_ms = now_ms
        self._append_time = append_time
        self._next = self._written = log.end[0]  # offsets: of the next record, and after the last written record
        # Batches that are waiting for the next write:
        self._buffers: list[Buffer] = []
        self._bytes = 0
        self._pending: list[tuple[ValidatedBatch, int]] = []  # (batch, its base offset)
        self._entries_pending = 0  # index entries that these batches may add
        self._updates: ProducerUpdates | None = None  # created on first use: most appends change no producer state
        self._measure()

    def run(self, batches: Sequence[ValidatedBatch | KafkaError], sets: Sequence[Records]) -> list[Verdict]:
        """See append_batches."""
        verdicts: list[Verdict] = []
        try:
            for batch, records in zip(batches, sets, strict=False):  # `sets` may be longer than this group
                check = type(records) is not OwnBatch
                verdicts.append(batch if isinstance(batch, KafkaError) else self._take(batch, check))
            self._write()
        except OSError as error:
            if not is_shortage(error):
                raise
            self._refuse_unwritten(verdicts, len(batches), error)
        except Exception as error:
            undo_append(self._log, producers=self._updates is not None)
            if not isinstance(error, MemoryError):
                raise
            self._refuse_unwritten(verdicts, len(batches), no_memory())
        return verdicts

    def _take(self, batch: ValidatedBatch, check: bool) -> Verdict:
        """Add a batch to the next write and return its verdict. `check`: check the producer's sequence."""
        base_offset = self._next
        last_offset = base_offset + batch.last_offset_delta
        known_producer = batch.producer_id >= 0
        if known_producer and check:
            before = self._producers().duplicate_of(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
            )
            if before is not None:
                return AppendResult(before.first_offset, before.last_offset, before.timestamp, self._log_start, True)
        try:
            # Assign offsets before using the size: a compressed set of format 0 contains its offsets, so it is only
            # built now.
            assign(batch, base_offset, self._epoch)
            self._make_room(batch, last_offset)
            if batch.is_control:
                self._end_transaction(batch, base_offset)
            elif known_producer:
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
        self._bytes += batch.size
        self._pending.append((batch, base_offset))
        self._next = last_offset + 1
        return AppendResult(base_offset, last_offset, self._append_time, self._log_start)

    def _producers(self) -> ProducerUpdates:
        """Return the pending changes to the producer state."""
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

    def _make_room(self, batch: ValidatedBatch, last_offset: int) -> None:
        """Roll the log if the batch has to go to a new segment. Raises KafkaError if it is larger than a segment."""
        size = batch.size
        if size > self._segment_bytes:
            raise KafkaError(
                Errors.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes does not fit into a segment of {self._log.name} (segment.bytes "
                f"{self._segment_bytes})",
            )
        entries = 1
        if batch.magic < 2 and _is_set(batch):
            entries = min(batch.count, 1 + size // (self._log.config.index_interval_bytes + 1))
        if self._entries_left < self._entries_pending + entries:
            self._write()  # after the write the exact number of free entries is known
            self._measure()
        filled = self._filled + self._bytes
        if filled == 0:
            waited = 0
        else:
            first = self._first_timestamp if self._filled else self._pending[0][0].max_timestamp
            waited = batch.max_timestamp - first if first >= 0 else self._now_ms - self._created_ms
        if (
            filled > self._segment_bytes - size
            or waited > self._patience_ms
            or self._entries_left < entries
            or last_offset > self._last_possible
        ):
            self._write()
            self._log.roll_locked()
            self._measure()
        self._entries_pending += entries

    def _measure(self) -> None:
        """Read the values that decide when the active segment is full. Needed again after a write or a roll."""
        config, segment = self._log.config, self._log.segments.active
        self._segment_bytes = config.segment_bytes
        self._entries_left = segment.entries_left()
        self._filled = segment.size
        self._first_timestamp = segment.first_timestamp()
        self._created_ms = segment.created_ms
        self._patience_ms = config.max_segment_ms - segment.roll_jitter_ms
        self._last_possible = segment.base_offset + MAX_RELATIVE_OFFSET

    def _write(self) -> None:
        """Write all pending batches at once, then update the indexes, the producer state and the log's end."""
        pending = self._pending
        if not pending:
            return
        log = self._log
        segment = log.segments.active
        position = segment.size
        began = time.monotonic()
        segment.write(self._buffers)
        self._log.write_seconds += time.monotonic() - began
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
        log.producers.end_offset = self._next
        log.appended_locked(self._written, position, self._next)
        self._written = self._next
        self._buffers, self._pending, self._bytes, self._entries_pending = [], [], 0, 0

    def _refuse_unwritten(self, verdicts: list[Verdict], count: int, error: OSError) -> None:
        """Refuse the batches that were not written for lack of space or memory, their duplicates, and later ones."""
        written = self._written
        places = [at for at, one in enumerate(verdicts) if isinstance(one, AppendResult) and one.base_offset >= written]
        not_taken = count - len(verdicts)
        refusal = self._log.env.refuse(f"appending to {self._log.name}", error, len(places) + not_taken)
        for at in places:
            verdicts[at] = refusal
        verdicts.extend([refusal] * not_taken)


def _is_set(batch: ValidatedBatch) -> bool:
    """Return True if a batch of format 0 or 1 is several messages, each of which is indexed separately."""
    return batch.codec == 0 and batch.count > 1


def _index_set(segment: Segment, batch: ValidatedBatch, base_offset: int) -> None:
    for size, count, timestamp, before in index_steps(batch.data, segment.index_interval, segment.bytes_since_entry):
        segment.appended(size, base_offset + count - 1, timestamp, base_offset + before)
        base_offset += count
