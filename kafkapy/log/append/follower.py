"""A follower's append: batches that the leader has validated are written as they came, with their offsets and epochs.

Nothing is decompressed and no offset is assigned: one pass over the bytes (`segment_scan.scan_buffer`) checks lengths,
magic, CRC and the order of offsets, and finds the index entries, leader epochs and producers. Sequences, timestamps and
sizes are not checked, because the leader has. Source: UnifiedLog.appendAsFollower, LogSegment.append.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkapy._ext.segment_scan import Scan, scan_buffer
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import no_memory
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.producers.producer_rebuild import replay
from kafkapy.log.results import BUSY, Busy
from kafkapy.log.retention.cleanup import undo_append
from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET, Segment

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog

_HEAD = struct.Struct(">qi")  # base offset, length of the rest
_EPOCH = struct.Struct("=qq")
_MAX_TIMESTAMP = struct.Struct(">35xq")
_MESSAGE_TIMESTAMP = struct.Struct(">18xq")
_UP_TO_MAGIC = 17
_MAGIC_AT = 16
_BATCH_EPOCH = struct.Struct(">12xi")
_LAST_OFFSET_DELTA = struct.Struct(">23xi")
_IN_USE_MS = 10_000  # for this long after an append, the end of the log is assumed to be in the page cache


class Followed(NamedTuple):
    """The result of a follower's append: the bytes that were written, and the log end offset after them.

    `left` is True if the data ends in the beginning of a batch, which was not written.
    """

    size: int
    end_offset: int
    left: bool


class UnexpectedOffset(Exception):
    """Raised when a fetched batch begins below the log end offset.

    Either this log ends inside a batch of the leader's log (see kafkapy.replica.follower_log), or the leader's log is
    not the one with which this log was compared. `first_offset` and `last_offset` are those of the batch; in message
    formats 0 and 1 both are the same.
    """

    def __init__(self, name: str, first_offset: int, last_offset: int, end_offset: int) -> None:
        super().__init__(f"the leader sent offset {first_offset} of {name}, whose log ends at {end_offset}")
        self.first_offset = first_offset
        self.last_offset = last_offset


def write_followed(log: PartitionLog, data: memoryview, leader_epoch: int, blocking: bool) -> Followed | Busy:
    """Append the whole batches of `data`, under the log's lock. Return what was written, see Followed.

    With `blocking=False`, returns BUSY without any change if the append would probably wait for a disk. Raises
    KafkaError CORRUPT_MESSAGE for a damaged batch, after the batches before it were written, and for a batch of a later
    epoch than `leader_epoch`, in which the data was fetched. Raises UnexpectedOffset and OSError.
    """
    log.write_seconds = 0.0
    if not blocking and _may_wait(log, data):
        return BUSY
    written = 0
    while len(data) - written >= _UP_TO_MAGIC:
        rest = data[written:]
        first_offset, length = _HEAD.unpack_from(rest)
        if first_offset < log.end[0]:
            raise UnexpectedOffset(log.name, first_offset, _last_offset(rest, first_offset), log.end[0])
        size = _HEAD.size + length
        if size > len(rest) and length > 0:
            return Followed(written, log.end[0], True)
        # Without `blocking`, `_may_wait` has found that the first batches have room in the active segment, and that its
        # indexes are in memory.
        segment = _room(log, first_offset, size, rest) if blocking or written else log.segments.active
        if size < len(rest):
            rest = rest[: max(size, _bytes_left(log, segment))]
        found = _scan(log, segment, rest)
        if found.batches:
            begun = _begun_epochs(log, found, leader_epoch)
            if begun and not (blocking or written):
                return BUSY
            count = found.valid_end - segment.size
            _write(log, segment, rest[:count], found, begun)
            written += count
        if not found.batches or (found.stopped_by is not None and not (found.incomplete or found.too_far)):
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"the leader's data for {log.name}: {found.stopped_by}")
    return Followed(written, log.end[0], written < len(data))


def _last_offset(data: memoryview, first_offset: int) -> int:
    if data[_MAGIC_AT] < 2 or len(data) < _LAST_OFFSET_DELTA.size:
        return first_offset
    delta: int = _LAST_OFFSET_DELTA.unpack_from(data)[0]
    return first_offset + delta


def _may_wait(log: PartitionLog, data: memoryview) -> bool:
    """Return True if an append of `data` would probably wait for a disk: for a roll, the file of the leader epochs, or
    a page of the segment that is not in memory.
    """
    segment = log.segments.active
    if len(data) < _UP_TO_MAGIC or data[_MAGIC_AT] < 2 or not segment.growing:
        return True
    if segment.size and segment.first_timestamp_in_memory is None:  # the first append since the start has to read it
        return True
    if _BATCH_EPOCH.unpack_from(data)[0] != log.leader_epochs.latest_epoch:
        return True
    first_offset = _HEAD.unpack_from(data)[0]
    if (
        len(data) > _bytes_left(log, segment)
        or _last_offset(data, first_offset) - segment.base_offset > MAX_RELATIVE_OFFSET
        or _is_old(log, segment, data)
    ):
        return True
    now_ms = log.clock.time_ms()
    if now_ms - log.appended_ms > _IN_USE_MS:
        if not segment.ends_in_memory():
            return True
        log.appended_ms = now_ms
    return False


def _bytes_left(log: PartitionLog, segment: Segment) -> int:
    """Return how many bytes of batches fit into the segment, with their index entries into its indexes."""
    return min(log.config.segment_bytes - segment.size, (segment.entries_left() - 1) * segment.index_interval)


def _room(log: PartitionLog, first_offset: int, size: int, data: memoryview) -> Segment:
    """Return the active segment, after a roll if a batch of `size` bytes has no room in it or is too late for it."""
    segment, config = log.segments.active, log.config
    if not segment.growing:
        segment.make_active()
    if _last_offset(data, first_offset) - segment.base_offset > MAX_RELATIVE_OFFSET:
        log.roll_locked(first_offset)
    elif segment.size and (
        segment.size + size > config.segment_bytes or segment.entries_left() < 2 or _is_old(log, segment, data)
    ):
        log.roll_locked()
    return log.segments.active


def _is_old(log: PartitionLog, segment: Segment, data: memoryview) -> bool:
    magic = data[_MAGIC_AT]
    stamp = _MAX_TIMESTAMP if magic >= 2 else _MESSAGE_TIMESTAMP
    largest = stamp.unpack_from(data)[0] if magic and len(data) >= stamp.size else -1
    first = segment.first_timestamp()
    waited = largest - first if first >= 0 else log.clock.time_ms() - segment.created_ms
    return waited > log.config.max_segment_ms - segment.roll_jitter_ms


def _scan(log: PartitionLog, segment: Segment, data: memoryview) -> Scan:
    return scan_buffer(
        data,
        segment.size,
        segment.base_offset,
        log.end[0],
        segment.index_interval,
        segment.bytes_since_entry,
        segment.time_index.last_entry[0],
        *segment.max_timestamp,
    )


def _begun_epochs(log: PartitionLog, found: Scan, leader_epoch: int) -> list[tuple[int, int]]:
    """Return (epoch, first offset) of each leader epoch that begins with these batches, in the order of the batches.

    Raises KafkaError CORRUPT_MESSAGE if one is later than `leader_epoch`.
    """
    latest = log.leader_epochs.latest_epoch
    begun: list[tuple[int, int]] = []
    for epoch, offset in _EPOCH.iter_unpack(found.epochs):
        if epoch > leader_epoch:
            raise KafkaError(
                Errors.CORRUPT_MESSAGE,
                f"offset {offset} of {log.name} is of leader epoch {epoch}, it was fetched in {leader_epoch}",
            )
        if epoch > latest:
            begun.append((epoch, offset))
    return begun


def _write(
    log: PartitionLog, segment: Segment, data: memoryview, found: Scan, begun: Sequence[tuple[int, int]]
) -> None:
    first_offset, _, position = log.end
    for epoch, offset in begun:
        if epoch > log.leader_epochs.latest_epoch:
            log.leader_epochs.assign(epoch, offset)  # written before a record of the epoch is in the log (KIP-101)
    if data[_MAGIC_AT] < 2 and log.leader_epochs.entries:
        log.leader_epochs.clear()  # batches of message formats 0 and 1 have no epoch
    began = time.monotonic()
    segment.write([data])
    log.write_seconds += time.monotonic() - began
    try:
        if found.producers:
            for one in _producers(log, data, position, found):
                segment.txn_index.append(one)
        segment.appended_many(len(data), found)
        log.producers.end_offset = found.next_offset
        log.appended_locked(first_offset, position, found.next_offset)
    except BaseException as error:
        undo_append(log, producers=True)
        if isinstance(error, MemoryError):
            raise no_memory() from error
        raise


def _producers(log: PartitionLog, data: memoryview, position: int, found: Scan) -> list[AbortedTxn]:
    """Apply the batches to the producer state, and return the aborted transactions for the transaction index."""
    return replay(log.producers, lambda size, at: bytes(data[at - position : at - position + size]), found.producers)
