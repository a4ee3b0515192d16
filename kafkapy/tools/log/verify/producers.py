"""Checks producers' sequences and transactions over the segments of a log, transaction indexes and producer snapshots.

This replays the log as the broker does (kafkapy.log.producers.producer_rebuild), with the checks of an append.
Compaction removes batches, so a missing sequence is no problem where offsets are missing, too.
"""

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafkapy._ext.batch import read_header
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.index_files import ABORTED_ENTRY, AbortedTransaction, aborted_transactions, producer_entries
from kafkapy.log.offline.index_files import ProducerEntry as StoredProducer
from kafkapy.log.producers.producer_state import NO_OFFSET, BatchNote, CompletedTxn, ProducerEntry, ProducerState
from kafkapy.record.control import ABORT, COMMIT, control_record_of
from kafkapy.tools.log.verify.report import Report

_PRODUCED = Struct("=qqqqqqqiiiihh4x")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_SEQUENCES = 1 << 31
_FOREVER = 1 << 62


class _Produced(NamedTuple):
    """The producer fields of a batch, as the Checker returns them (see ext/segment_check.pxd)."""

    producer_id: int
    first_offset: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    position: int
    gap: int
    first_sequence: int
    base_sequence: int
    last_sequence: int
    size: int
    epoch: int
    attributes: int


class ProducerCheck:
    """Checks the producers of one log. Call `begin` for the snapshot at the log's start; then for each segment `follow`
    while it is read, and `segment_ends`."""

    def __init__(self, report: Report, *, by_coordinator: bool) -> None:
        """`by_coordinator` is True for a topic that the broker's coordinators write; its sequences are not checked."""
        self._report = report
        self._by_coordinator = by_coordinator
        self._state = ProducerState(_FOREVER)
        self._aborted: list[AbortedTransaction] = []
        self._markers: dict[
            int, tuple[int, bool]
        ] = {}  # offset of a marker in this segment -> (producer id, True for an abort)
        self._gap = False  # True once batches are missing
        self._gap_at = -1  # the first offset after the last gap that was reported

    def begin(self, snapshot: Path) -> None:
        """Load the producer state of earlier, deleted records from the snapshot at the first segment, if it can be
        read."""
        try:
            stored = producer_entries(snapshot)
        except (OSError, OfflineError):
            return
        self._state.load([_entry_of(one) for one in stored], 0, 0)

    def missing_before(self, offset: int) -> None:
        """Note that batches before this offset are missing or unreadable, so that the state of their producers is not
        known."""
        self._gap, self._gap_at = True, offset

    def follow(self, path: Path, produced: bytes, read: Callable[[int, int], bytes]) -> None:
        """Check the next batches of a segment, and update the producer state. `produced` is the output of
        Checker.take_produced; `read(position, size)` returns bytes from the same part of the file."""
        for fields in _PRODUCED.iter_unpack(produced):
            one = _Produced(*fields)
            self._gap |= one.gap >= 0
            entry = self._state.producers.get(one.producer_id) or ProducerEntry(one.producer_id)
            if one.attributes & _CONTROL:
                self._marker(path, one, entry, read(one.position, one.size))
                continue
            self._check_sequence(path, one, entry)
            delta = one.last_offset - one.base_offset
            entry.add(one.epoch, BatchNote(one.last_sequence, one.last_offset, delta, one.max_timestamp))
            if one.attributes & _TRANSACTIONAL and entry.txn_first_offset < 0:
                entry.txn_first_offset = one.base_offset
            elif not one.attributes & _TRANSACTIONAL and entry.txn_first_offset >= 0:
                self._wrong(path, one, f"a batch outside of its transaction, open since {entry.txn_first_offset}")
            self._state.put(entry)

    def segment_ends(self, log: Path, next_base: int) -> None:
        """Compare the segment's transaction index, which may not exist, with the aborted transactions found in the
        segment."""
        self._check_transaction_index(log.with_suffix(".txnindex"), int(log.stem), next_base)
        self._aborted, self._markers = [], {}
        with self._state.lock:
            self._state.high_watermark_moved(_FOREVER)

    def snapshot(self, path: Path, offset: int, first_offset: int) -> None:
        """Compare a producer snapshot with the state of the producers. The log has been followed up to `offset`, the
        offset of the snapshot.

        `first_offset` is the log's first offset. Producers that wrote only before it are not compared.
        """
        self._report.checked(path)
        try:
            stored = producer_entries(path)
        except OfflineError as error:
            self._report.add(path, str(error).removeprefix(f"{path} ").rstrip("."))
            return
        for one in stored:
            entry = self._state.producers.get(one.producer_id)
            if one.last_offset >= offset:
                self._differs(path, one, f"last offset {one.last_offset}", f"the snapshot is of {offset}")
            elif entry is None:
                if one.last_offset >= first_offset and not self._gap:
                    self._differs(path, one, f"last offset {one.last_offset}", "the log has nothing of it")
            else:
                self._compare(path, one, entry)

    # --- sequences

    def _check_sequence(self, path: Path, one: _Produced, entry: ProducerEntry) -> None:
        if one.epoch < entry.epoch:
            self._wrong(path, one, f"producer epoch {one.epoch} after {entry.epoch}")
        if self._by_coordinator or (not entry.batches and one.epoch == entry.epoch):
            return
        if max(one.gap, self._gap_at) > (entry.batches[-1].last_offset if entry.batches else -1):
            return  # the batches in between were compacted away
        if one.epoch == entry.epoch:
            expected = (entry.last_sequence + 1) % _SEQUENCES
            if one.first_sequence != expected:
                self._wrong(path, one, f"sequence {one.first_sequence} where {expected} had to follow")
        elif one.first_sequence != 0 and entry.epoch >= 0:
            self._wrong(path, one, f"sequence {one.first_sequence} at the start of producer epoch {one.epoch}")

    def _wrong(self, path: Path, one: _Produced, what: str) -> None:
        offset = one.first_offset
        self._report.add(path, f"producer {one.producer_id} has {what}, at offset {offset}", offset=offset)

    # --- transactions

    def _marker(self, path: Path, one: _Produced, entry: ProducerEntry, data: bytes) -> None:
        try:
            marker = control_record_of(data, read_header(data))
        except ValueError as error:
            self._report.add(
                path,
                f"the control batch at position {one.position} (offset {one.base_offset}) is invalid: {error}",
                position=one.position,
                offset=one.base_offset,
            )
            return
        if marker is None or marker.type not in (ABORT, COMMIT) or marker.coordinator_epoch is None:
            return
        self._markers[one.base_offset] = (one.producer_id, marker.type == ABORT)
        first = entry.end_transaction(one.epoch, marker.coordinator_epoch, one.max_timestamp)
        self._state.put(entry)
        if first == NO_OFFSET:
            return
        txn = CompletedTxn(one.producer_id, first, one.base_offset, marker.type == ABORT)
        if txn.aborted:
            stable = self._state.last_stable_offset(txn)
            self._aborted.append(AbortedTransaction(0, txn.producer_id, first, txn.last_offset, stable))
        self._state.complete(txn)

    def _check_transaction_index(self, path: Path, base: int, next_base: int) -> None:
        stored: list[AbortedTransaction] = []
        if path.exists():
            size = path.stat().st_size
            self._report.checked(path, size)
            if size % ABORTED_ENTRY.size:
                whole = f"which are not whole entries of {ABORTED_ENTRY.size} bytes"
                self._report.add(path, f"has {size} bytes, {whole}", position=size - size % ABORTED_ENTRY.size)
            try:
                stored = list(aborted_transactions(path))
            except OfflineError as error:
                self._report.add(path, str(error).removeprefix(f"{path} ").removesuffix(" Is it damaged?").rstrip("."))
                return
        known = {one.last_offset: one for one in stored}
        for number, one in enumerate(stored):
            self._check_aborted(path, number * ABORTED_ENTRY.size, one, base, next_base)
        for wanted in self._aborted:
            found = known.get(wanted.last_offset)
            if found is None:
                self._report.add(
                    path,
                    f"has no entry for the transaction of producer {wanted.producer_id} that was aborted at offset "
                    f"{wanted.last_offset}",
                    offset=wanted.last_offset,
                )
            elif found.first_offset > wanted.first_offset or (found != wanted and not self._gap):
                self._report.add(path, f"has {_aborted_text(found)}, the log {_aborted_text(wanted)}", offset=base)

    def _check_aborted(self, path: Path, at: int, one: AbortedTransaction, base: int, next_base: int) -> None:
        """Check an entry of a transaction index. Its marker or its transaction may be missing in the log, because
        compaction may have removed it."""
        where = f"the entry at position {at} ({_aborted_text(one)})"
        if not base <= one.last_offset < next_base:
            self._report.add(path, f"{where} belongs to another segment", position=at, offset=one.last_offset)
        elif self._markers.get(one.last_offset, (one.producer_id, True)) != (one.producer_id, True):
            self._report.add(
                path, f"{where} names a marker that is of another producer or a commit", position=at, offset=base
            )
        elif one.first_offset > one.last_offset or one.last_stable_offset > one.last_offset + 1:
            self._report.add(path, f"{where} contradicts itself", position=at, offset=one.last_offset)

    # --- snapshots

    def _compare(self, path: Path, one: StoredProducer, entry: ProducerEntry) -> None:
        note = entry.batches[-1] if entry.batches else None
        last = note.last_offset if note is not None else -1
        if self._gap and (one.last_offset > last or one.producer_epoch > entry.epoch):
            return  # its last batch was compacted away
        pairs = [("producer epoch", one.producer_epoch, entry.epoch), ("last offset", one.last_offset, last)]
        if note is not None and one.last_offset == last:
            pairs += [("last sequence", one.last_sequence, note.last_sequence)]
            pairs += [("offset delta", one.offset_delta, note.offset_delta)]
        if not self._gap:
            pairs += [("timestamp", one.timestamp, entry.last_timestamp)]
            pairs += [("first offset of its transaction", one.current_txn_first_offset, entry.txn_first_offset)]
        for name, stored, followed in pairs:
            if stored != followed:
                self._differs(path, one, f"{name} {stored}", f"the log {followed}")
                return

    def _differs(self, path: Path, one: StoredProducer, says: str, but: str) -> None:
        self._report.add(path, f"says of producer {one.producer_id}: {says}, but {but}")


def _aborted_text(one: AbortedTransaction) -> str:
    return (
        f"producer {one.producer_id}, offsets {one.first_offset} to {one.last_offset}, last stable offset "
        f"{one.last_stable_offset}"
    )


def _entry_of(one: StoredProducer) -> ProducerEntry:
    notes = [BatchNote(one.last_sequence, one.last_offset, one.offset_delta, one.timestamp)]
    return ProducerEntry(
        one.producer_id,
        one.producer_epoch,
        one.coordinator_epoch,
        one.timestamp,
        max(one.current_txn_first_offset, NO_OFFSET),
        notes if one.last_offset >= 0 else [],
    )
