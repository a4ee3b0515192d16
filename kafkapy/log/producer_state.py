"""What a log knows of the producers that write to it: sequences, epochs, open transactions.

Source: Kafka's ProducerStateManager, ProducerStateEntry and ProducerAppendInfo (KIP-98). Sequences are
non-negative int32 numbers that wrap to 0. Nothing here touches a file; snapshots are in producer_snapshots.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.verifications import Verifications

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
RETAINED_BATCHES = 5

_SEQUENCE_MASK = 0x7FFFFFFF


class BatchNote(NamedTuple):
    """A batch that was written; `offset_delta` is its last offset minus its first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer: its current epoch, its last batches in it (oldest first), its open transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        txn_first_offset: int = NO_OFFSET,
        batches: list[BatchNote] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        self.batches = batches if batches is not None else []

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.txn_first_offset,
            self.batches.copy(),
        )

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchNote | None:
        """The remembered batch with exactly these sequences: the client sent it again."""
        if epoch == self.epoch:
            for note in self.batches:
                if note.last_sequence == last_sequence and note.first_sequence == first_sequence:
                    return note
        return None

    def check_epoch(self, where: str, epoch: int, offset: int) -> None:
        """Raises KafkaError if a batch with this epoch is of a producer that was fenced."""
        if epoch < self.epoch:
            raise KafkaError(
                Errors.INVALID_PRODUCER_EPOCH,
                f"producer {self.producer_id} at offset {offset} of {where} has epoch {epoch}, "
                f"the last one seen is {self.epoch}",
            )

    def check_sequence(self, where: str, epoch: int, first_sequence: int, offset: int) -> None:
        """Raises KafkaError if a client's batch with this sequence may not follow.

        A producer of which nothing is known (its records were deleted, or it expired) may begin anywhere.
        """
        if self.epoch == NO_EPOCH:
            return
        if epoch != self.epoch:
            if first_sequence != 0:
                raise KafkaError(
                    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {self.producer_id} at offset {offset} of {where} begins epoch {epoch} with "
                    f"sequence {first_sequence}, expected 0 (the epoch before is {self.epoch})",
                )
            return
        last = self.last_sequence
        if first_sequence != (last + 1) & _SEQUENCE_MASK:
            raise KafkaError(
                Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {self.producer_id} at offset {offset} of {where} sends sequence {first_sequence} "
                f"after {last}",
            )

    def add(self, epoch: int, note: BatchNote) -> None:
        batches = self.batches
        if epoch != self.epoch:
            batches.clear()
            self.epoch = epoch
        elif len(batches) == RETAINED_BATCHES:
            del batches[0]
        batches.append(note)
        self.last_timestamp = note.timestamp

    def end_transaction(self, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """Notes a marker; returns the first offset of the transaction that it ends, NO_OFFSET if none is open."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        first, self.txn_first_offset = self.txn_first_offset, NO_OFFSET
        return first

    def check_coordinator(self, where: str, coordinator_epoch: int, offset: int) -> None:
        """Raises KafkaError TRANSACTION_COORDINATOR_FENCED where a later coordinator has written a marker already."""
        if coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                Errors.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {self.producer_id} at offset {offset} of {where} is of coordinator epoch "
                f"{coordinator_epoch}, the last one seen is {self.coordinator_epoch}",
            )


class CompletedTxn(NamedTuple):
    """`last_offset` is that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerState:
    """The producers of one log. Guarded by the log's lock; `first_unstable_offset` may be read without it."""

    __slots__ = (
        "_expiration_ms",
        "_undecided",
        "end_offset",
        "first_unstable_offset",
        "open",
        "producers",
        "verifications",
    )

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0  # up to here the log's records are accounted for
        self.verifications = Verifications()
        # First offset of an open transaction -> producer id. Transactions begin at the end of the log, so the dict,
        # which keeps the order of insertion, is in the order of offsets.
        self.open: dict[int, int] = {}
        self._undecided: dict[int, int] = {}  # first offset -> marker's offset, which the high watermark must pass
        self.first_unstable_offset: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._undecided

    @property
    def awaits_high_watermark(self) -> bool:
        """Whether `high_watermark_moved` may change something. May be asked without the lock."""
        return bool(self._undecided)

    def clear(self, end_offset: int) -> None:
        self.producers.clear()
        self.verifications.clear()
        self.open.clear()
        self._undecided.clear()
        self.end_offset = end_offset
        self.first_unstable_offset = None

    def load(self, entries: list[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Takes over a snapshot that was made at `end_offset`, without what has expired since."""
        for entry in entries:
            if not self._expired(entry, now_ms):
                self.producers[entry.producer_id] = entry
        begun = [one for one in entries if one.txn_first_offset >= 0]
        self.open.update((one.txn_first_offset, one.producer_id) for one in sorted(begun, key=_first_offset))
        self.end_offset = end_offset
        self._find_unstable()

    def expire(self, now_ms: int) -> None:
        """Forgets producers that have not written for producer.id.expiration.ms and have no open transaction."""
        for producer_id in [entry.producer_id for entry in self.producers.values() if self._expired(entry, now_ms)]:
            del self.producers[producer_id]
        self.verifications.expire(now_ms - self._expiration_ms)

    def is_open(self, producer_id: int) -> bool:
        """Whether the producer has a transaction open. May be asked without the lock."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0

    def _expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self._expiration_ms

    def put(self, entry: ProducerEntry) -> None:
        """Takes over an entry that records in the log have changed."""
        self.producers[entry.producer_id] = entry
        if entry.txn_first_offset >= 0:
            self.begin(entry.txn_first_offset, entry.producer_id)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction has its first records in the log; known already is fine."""
        if first_offset not in self.open:
            self.open[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def complete(self, txn: CompletedTxn) -> None:
        """The transaction is decided, but counts as unstable until the high watermark is behind its marker."""
        self.open.pop(txn.first_offset, None)
        self._undecided[txn.first_offset] = txn.last_offset
        self._find_unstable()

    def last_stable_offset(self, txn: CompletedTxn) -> int:
        """The last stable offset once this transaction is complete: for the transaction index."""
        others = (first for first, producer_id in self.open.items() if producer_id != txn.producer_id)
        return next(others, txn.last_offset + 1)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose marker is below it are stable now."""
        if self._undecided:
            self._undecided = {first: last for first, last in self._undecided.items() if last >= high_watermark}
            self._find_unstable()

    def log_start_moved(self, log_start_offset: int) -> None:
        self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _find_unstable(self) -> None:
        undecided = min(self._undecided, default=None)
        first = next(iter(self.open), None)
        self.first_unstable_offset = (
            first if undecided is None or (first is not None and first < undecided) else undecided
        )


def _first_offset(entry: ProducerEntry) -> int:
    return entry.txn_first_offset
