"""The part of an append that holds the log's lock: sequences, rolling, offsets, one write, the indexes.

A gathered append takes several produced record sets at once. Each gets its own verdict and is indexed as an append
of its own, but as many as go to one segment leave in one system call. A set of single messages, of formats 0 and 1, is
indexed message by message, as Kafka does since 3.9.1. Source: Kafka's UnifiedLog.append and LogSegment.append.
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
from kafkapy.log.failures import is_shortage, shortage
from kafkapy.log.files import Buffer
from kafkapy.log.producer_updates import ProducerUpdates
from kafkapy.log.results import AppendResult
from kafkapy.log.segment import MAX_RELATIVE_OFFSET, Segment
from kafkapy.record.control import control_record_of

if TYPE_CHECKING:
    from kafkapy.log.log_state import LogState

Verdict = AppendResult | KafkaError

_NEVER = (1 << 63) - 1
_IN_USE_MS = 10_000  # so long after an append the end of a log is taken to be in memory
_MAX_TIMESTAMP = struct.Struct(">35xq")
_COUNT = struct.Struct(">57xi")


def would_wait(log: LogState, sets: Sequence[memoryview], leader_epoch: int, now_ms: int) -> bool:
    """A guess before anything is validated: it looks at sizes and at the last set's largest timestamp."""
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
            return True  # the first append since the start: it is read from the disk
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


def append_plain(log: LogState, batch: ValidatedBatch, leader_epoch: int) -> AppendResult:
    """What `Append` does, the short way, for one batch of format 2 that is of no producer, no control batch and not
    stamped. Under the lock, where nothing `would_wait`. Raises OSError, and then nothing is appended.
    """
    base_offset, segment, position = log.end
    last_offset = base_offset + batch.last_offset_delta
    assign(batch, base_offset, leader_epoch)
    began = time.monotonic()
    segment.write([batch.data])
    log.write_seconds = time.monotonic() - began
    segment.appended(batch.size, last_offset, batch.max_timestamp, base_offset + batch.offset_delta_of_max_timestamp)
    log.producers.end_offset = last_offset + 1
    log.appended(base_offset, position, last_offset + 1)
    return AppendResult(base_offset, last_offset, -1, log.log_start_offset)


class Append:
    """One gathered append, under the lock of `log`. `run` once."""

    __slots__ = (
        "_append_time",
        "_buffers",
        "_bytes",
        "_check",
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

    def __init__(self, log: LogState, leader_epoch: int, now_ms: int, check_sequences: bool) -> None:
        self._log = log
        log.write_seconds = 0.0
        self._log_start = log.log_start_offset
        self._epoch = leader_epoch
        self._now_ms = now_ms
        # What the producer is told; format 0, which has no timestamps, is no exception in Kafka.
        self._append_time = now_ms if log.config.message_timestamp_type == "LogAppendTime" else -1
        self._check = check_sequences
        self._next = self._written = log.end[0]  # offsets: of the next record, and up to where all is written
        # What waits for the next write:
        self._buffers: list[Buffer] = []
        self._bytes = 0
        self._pending: list[tuple[ValidatedBatch, int]] = []  # (batch, its base offset)
        self._entries_pending = 0  # index entries that they may add
        self._updates: ProducerUpdates | None = None  # most appends have nothing to do with producers
        self._measure()

    def run(self, batches: Sequence[ValidatedBatch | KafkaError]) -> list[Verdict]:
        """The verdicts, in order. Raises OSError if the disk fails for another reason than being full."""
        verdicts: list[Verdict] = []
        try:
            for batch in batches:
                verdicts.append(batch if isinstance(batch, KafkaError) else self._take(batch))
            self._write()
        except OSError as error:
            if not is_shortage(error):
                raise
            self._refuse_unwritten(verdicts, len(batches), error)
        return verdicts

    def _take(self, batch: ValidatedBatch) -> Verdict:
        base_offset = self._next
        last_offset = base_offset + batch.last_offset_delta
        known_producer = batch.producer_id >= 0
        if known_producer and self._check:
            before = self._producers().duplicate_of(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
            )
            if before is not None:
                return AppendResult(before.first_offset, before.last_offset, before.timestamp, self._log_start, True)
        try:
            # Before its size is looked at: a compressed set of format 0 has the offsets inside, and is made only now.
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
                    check=self._check,
                )
        except KafkaError as refusal:
            return refusal.as_value()
        self._buffers.append(batch.data)
        self._bytes += batch.size
        self._pending.append((batch, base_offset))
        self._next = last_offset + 1
        return AppendResult(base_offset, last_offset, self._append_time, self._log_start)

    def _producers(self) -> ProducerUpdates:
        """What the batches change in the producer state."""
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
        """Rolls the log if the batch has to go to a new segment. Raises KafkaError where it fits into none."""
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
            self._write()  # pending batches may add entries: only now is it known how many are left
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
        """What decides when the active segment is full; looked up again only when a write or a roll changed it."""
        config, segment = self._log.config, self._log.segments.active
        self._segment_bytes = config.segment_bytes
        self._entries_left = segment.entries_left()
        self._filled = segment.size
        self._first_timestamp = segment.first_timestamp()
        self._created_ms = segment.created_ms
        self._patience_ms = config.max_segment_ms - segment.roll_jitter_ms
        self._last_possible = segment.base_offset + MAX_RELATIVE_OFFSET

    def _write(self) -> None:
        """One write of all that is pending; then, and only then, the log and the producer state know of it."""
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
        # The producers first: the high watermark may follow the log's end at once, on another thread, and a reader of
        # committed records must not get beyond a transaction that begins here, nor know of one that is aborted later
        # than it gets its records.
        if self._updates is not None:
            for aborted in self._updates.apply():
                segment.txn_index.append(aborted)
        log.producers.end_offset = self._next
        log.appended(self._written, position, self._next)
        self._written = self._next
        self._buffers, self._pending, self._bytes, self._entries_pending = [], [], 0, 0

    def _refuse_unwritten(self, verdicts: list[Verdict], count: int, error: OSError) -> None:
        """The disk is full: what was to be written, what repeats it and what was to follow is refused."""
        refusal = shortage(f"appending to {self._log.name}", error)
        for at, verdict in enumerate(verdicts):
            if isinstance(verdict, AppendResult) and verdict.base_offset >= self._written:
                verdicts[at] = refusal
        verdicts.extend([refusal] * (count - len(verdicts)))


def _is_set(batch: ValidatedBatch) -> bool:
    """Whether what is in format 0 or 1 are single messages, each of which is a batch to the indexes."""
    return batch.codec == 0 and batch.count > 1


def _index_set(segment: Segment, batch: ValidatedBatch, base_offset: int) -> None:
    for size, count, timestamp, before in index_steps(batch.data, segment.index_interval, segment.bytes_since_entry):
        segment.appended(size, base_offset + count - 1, timestamp, base_offset + before)
        base_offset += count
