"""The state of the producers that write to a log: sequences, epochs, open transactions.

Source: Kafka's ProducerStateManager, ProducerStateEntry and ProducerAppendInfo (KIP-98). Sequences are non-negative
int32 numbers that wrap to 0. This module accesses no files; for snapshots see producer_snapshots.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.producers.verifications import Verifications

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
RETAINED_BATCHES = 5

_LOOKED_AT = 8  # how many producers are examined at least, to find those that have not written for long

_SEQUENCE_MASK = 0x7FFFFFFF


class BatchNote(NamedTuple):
    """The last sequence, offsets and timestamp of a batch in the log, as the producer state remembers them.

    `offset_delta` is the batch's last offset minus its first offset.
    """

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
    """The state of one producer: its current epoch, its last batches in that epoch (oldest first), and its open
    transaction.
    """

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
        """Return the remembered batch with this epoch and exactly these sequences: the client has sent that batch
        again. Else None.
        """
        if epoch == self.epoch:
            for note in self.batches:
                if note.last_sequence == last_sequence and note.first_sequence == first_sequence:
                    return note
        return None

    def check_epoch(self, where: str, epoch: int, offset: int) -> None:
        """Raise KafkaError INVALID_PRODUCER_EPOCH if `epoch`, the producer epoch of a new batch, is older than the
        current one.

        `where` names the log, and `offset` the batch, in the error message.
        """
        if epoch < self.epoch:
            raise KafkaError(
                Errors.INVALID_PRODUCER_EPOCH,
                f"producer {self.producer_id} at offset {offset} of {where} has epoch {epoch}, "
                f"the last one seen is {self.epoch}",
            )

    def check_sequence(self, where: str, epoch: int, first_sequence: int, offset: int) -> None:
        """Raise KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER if a client's batch does not have the next sequence of this
        producer.

        The first sequence of a new epoch must be 0. A producer that is not known (its records were deleted, or its
        entry has expired) may begin at any sequence.
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
        """Remember a batch, and forget the oldest one if there are five already. A new epoch clears the remembered
        batches.
        """
        batches = self.batches
        if epoch != self.epoch:
            batches.clear()
            self.epoch = epoch
        elif len(batches) == RETAINED_BATCHES:
            del batches[0]
        batches.append(note)
        self.last_timestamp = note.timestamp

    def end_transaction(self, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """Record a transaction marker with these epochs, which ends the open transaction.

        Return the first offset of that transaction, NO_OFFSET if none was open.
        """
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        first, self.txn_first_offset = self.txn_first_offset, NO_OFFSET
        return first

    def check_coordinator(self, where: str, coordinator_epoch: int, offset: int) -> None:
        """Raise KafkaError TRANSACTION_COORDINATOR_FENCED if the coordinator epoch of a new marker is older than the
        last one seen.
        """
        if coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                Errors.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {self.producer_id} at offset {offset} of {where} is of coordinator epoch "
                f"{coordinator_epoch}, the last one seen is {self.coordinator_epoch}",
            )


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended. `last_offset` is the offset of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerState:
    """The state of all producers of one log. Guarded by the log's lock, except for what a thread that moves the high
    watermark needs.

    That thread must not wait for the log's lock, which an append holds while it writes. So `open`,
    `awaits_high_watermark` and `first_unstable_offset` change only under `lock`, which is never held during I/O: `open`
    under both locks, the other two under `lock` alone. `first_unstable_offset` may be read without a lock.
    """

    __slots__ = (
        "_most",
        "_rebuilding",
        "awaits_high_watermark",
        "end_offset",
        "evicted",
        "expiration_ms",
        "first_unstable_offset",
        "lock",
        "open",
        "producers",
        "verifications",
    )

    def __init__(self, expiration_ms: int, most: int = sys.maxsize) -> None:
        self.expiration_ms = expiration_ms  # producer.id.expiration.ms, which may change
        self._most = most
        self.evicted = 0  # producers that were forgotten because there were more than `most`
        self.producers: dict[int, ProducerEntry] = {}
        # The state includes all records below this offset. Appends and rolls set it to the log's end, under its lock; a
        # failed append sets -1, so that the state is rebuilt.
        self.end_offset = 0
        self.verifications = Verifications()
        self.lock = threading.Lock()  # see the class; taken after every other lock of the log
        # First offset of an open transaction -> producer id. Transactions begin at the end of the log, so the dict,
        # which keeps the order of insertion, is in the order of offsets.
        self.open: dict[int, int] = {}
        # First offset -> marker offset, of ended transactions whose marker is not below the high watermark. Whether
        # there are any may be asked without a lock.
        self.awaits_high_watermark: dict[int, int] = {}
        self.first_unstable_offset: int | None = None
        self._rebuilding = False  # `first_unstable_offset` keeps its value meanwhile

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self.awaits_high_watermark

    def clear(self, end_offset: int) -> None:
        """Remove all producers. The state is then that of a log without producers whose log end offset is
        `end_offset`.
        """
        self.producers.clear()
        self.verifications.clear()
        self.end_offset = end_offset
        with self.lock:
            self.open.clear()
            self.awaits_high_watermark.clear()
            self._find_unstable()

    @contextmanager
    def rebuilding(self) -> Iterator[None]:
        """Keep the first unstable offset while the `with` block clears the state and fills it again.

        Otherwise a read_committed consumer could read records of an open transaction that is not in the state yet.
        """
        self._rebuilding = True
        try:
            yield
        finally:
            with self.lock:
                self._rebuilding = False
                self._find_unstable()

    def load(self, entries: list[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Add the producers of a snapshot that was taken at `end_offset`, except those that have expired since."""
        for entry in entries:
            if not self._expired(entry, now_ms):
                self.producers[entry.producer_id] = entry
        begun = [one for one in entries if one.txn_first_offset >= 0]
        self.end_offset = end_offset
        with self.lock:
            self.open.update((one.txn_first_offset, one.producer_id) for one in sorted(begun, key=_first_offset))
            self._find_unstable()

    def expire(self, now_ms: int) -> None:
        """Remove producers that have not written for producer.id.expiration.ms and have no open transaction.

        Also removes verifications of the same age.
        """
        for producer_id in [entry.producer_id for entry in self.producers.values() if self._expired(entry, now_ms)]:
            del self.producers[producer_id]
        self.verifications.expire(now_ms - self.expiration_ms)

    def is_open(self, producer_id: int) -> bool:
        """Return True if the producer has an open transaction in this log. May be called without the log's lock."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0

    def _expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def put(self, entry: ProducerEntry) -> None:
        """Store the entry of a producer whose batches were appended or replayed."""
        if len(self.producers) >= self._most and entry.producer_id not in self.producers:
            self._make_room()
        self.producers[entry.producer_id] = entry
        if entry.txn_first_offset >= 0:
            self.begin(entry.txn_first_offset, entry.producer_id)

    def _make_room(self) -> None:
        """Forget a sixteenth of the allowed number of producers: ones without an open transaction that have not written
        for long. So many at once, so that a flood of new producers costs little for each.

        Only producers at the beginning of the dict are examined. Those with the oldest last batches are forgotten, and
        the others move to the end of the dict, so that every producer is examined in turn. A forgotten producer may
        begin at any sequence when it writes again.
        """
        number = max(1, self._most // 16)
        idle = (one for one in self.producers.values() if one.txn_first_offset < 0)
        seen = sorted(islice(idle, max(_LOOKED_AT, 2 * number)), key=_last_offset)
        for entry in seen:
            del self.producers[entry.producer_id]
        for entry in seen[number:]:
            self.producers[entry.producer_id] = entry
        self.evicted += len(seen[:number])

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Record that the producer has a transaction open since `first_offset`. Does nothing if the transaction is
        known already.
        """
        if first_offset not in self.open:
            with self.lock:
                self.open[first_offset] = producer_id
                if self.first_unstable_offset is None and not self._rebuilding:
                    self.first_unstable_offset = first_offset

    def complete(self, txn: CompletedTxn) -> None:
        """Record that a transaction has ended. It counts as unstable until the high watermark is above its marker."""
        with self.lock:
            self.open.pop(txn.first_offset, None)
            self.awaits_high_watermark[txn.first_offset] = txn.last_offset
            self._find_unstable()

    def last_stable_offset(self, txn: CompletedTxn) -> int:
        """Return the last stable offset as it will be once `txn` is complete, for the entry in the transaction index.

        This is the first offset of the earliest open transaction of another producer, or the offset after the marker of
        `txn`.
        """
        others = (first for first, producer_id in self.open.items() if producer_id != txn.producer_id)
        return next(others, txn.last_offset + 1)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Count ended transactions whose marker is below the high watermark as stable, which may advance the last
        stable offset. Called with `lock` held.

        A caller without the log's lock reads the high watermark with `lock` held. Otherwise the log could be truncated
        after the read, and a marker that is then appended would count as replicated because of the old high watermark.
        """
        if self.awaits_high_watermark:
            waiting = self.awaits_high_watermark.items()
            self.awaits_high_watermark = {first: last for first, last in waiting if last >= high_watermark}
            self._find_unstable()

    def log_start_moved(self, log_start_offset: int) -> None:
        with self.lock:
            self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _find_unstable(self) -> None:
        if self._rebuilding:
            return
        undecided = min(self.awaits_high_watermark, default=None)
        first = next(iter(self.open), None)
        self.first_unstable_offset = (
            first if undecided is None or (first is not None and first < undecided) else undecided
        )


def _last_offset(entry: ProducerEntry) -> int:
    return entry.batches[-1].last_offset if entry.batches else NO_OFFSET


def _first_offset(entry: ProducerEntry) -> int:
    return entry.txn_first_offset
