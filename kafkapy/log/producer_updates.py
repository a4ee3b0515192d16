"""The changes that a group of appended batches makes to the producer state, kept apart until they are written.

Each batch is checked against the state as the batches before it in the same group leave it, and if the write
fails nothing has happened (Kafka does the same with one ProducerAppendInfo per producer and append).
"""

from __future__ import annotations

from itertools import chain

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.producer_state import NO_OFFSET, BatchNote, CompletedTxn, ProducerEntry, ProducerState
from kafkapy.log.txn_index import AbortedTxn
from kafkapy.log.verifications import Verification
from kafkapy.record.control import ABORT, ControlRecord


class ProducerUpdates:
    """Entries here hide those of the state; `apply` puts them into it.

    `verifying`: a transaction may begin only where its coordinator was asked (kafkapy.log.verifications).
    """

    __slots__ = ("_begun", "_changed", "_ended", "_marked", "_state", "_verifying", "_where")

    def __init__(self, state: ProducerState, where: str, *, verifying: bool = False) -> None:
        self._state = state
        self._where = where
        self._verifying = verifying
        self._changed: dict[int, ProducerEntry] = {}
        # Transactions that begin in this group, as ProducerState.open, and those that end in it, with their last
        # stable offsets.
        self._begun: dict[int, int] = {}
        self._ended: list[tuple[CompletedTxn, int]] = []
        self._marked: set[int] = set()  # producers with a marker in this group, also one that ends nothing here

    def _entry(self, producer_id: int) -> ProducerEntry | None:
        return self._changed.get(producer_id) or self._state.producers.get(producer_id)

    def duplicate_of(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> BatchNote | None:
        entry = self._entry(producer_id)
        return entry.duplicate_of(epoch, first_sequence, last_sequence) if entry is not None else None

    def add(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
        *,
        check: bool,
    ) -> None:
        """A data batch; `check` its sequence (a client's batch). If it raises KafkaError nothing has changed."""
        entry = self._entry(producer_id)
        begins = transactional and (entry is None or entry.txn_first_offset < 0)
        verification = self._verified(producer_id) if begins and self._verifying else None
        if entry is not None:
            entry.check_epoch(self._where, epoch, first_offset)
        if check and verification is not None and first_sequence > verification.lowest_sequence:
            # What waits with a lower sequence would else never be in order again.
            raise KafkaError(
                Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} at offset {first_offset} of {self._where} begins a transaction with sequence "
                f"{first_sequence}, and {verification.lowest_sequence} was seen before",
            )
        if entry is not None:
            if check:
                entry.check_sequence(self._where, epoch, first_sequence, first_offset)
            if entry.txn_first_offset >= 0 and not transactional:
                raise KafkaError(
                    Errors.INVALID_TXN_STATE,
                    f"producer {producer_id} has a transaction open in {self._where} and sends a batch outside of it "
                    f"at offset {first_offset}",
                )
        own = self._own(producer_id, entry)
        own.add(epoch, BatchNote(last_sequence, last_offset, last_offset - first_offset, timestamp))
        if begins:
            own.txn_first_offset = first_offset
            self._begun[first_offset] = producer_id

    def _verified(self, producer_id: int) -> Verification:
        # A marker in this group has ended what was verified before it.
        verification = None if producer_id in self._marked else self._state.verifications.of(producer_id)
        if verification is None or not verification.verified:
            raise KafkaError(
                Errors.INVALID_TXN_STATE,
                f"producer {producer_id} has no transaction open in {self._where}, and its coordinator has not said "
                "that one may begin",
            )
        return verification

    def end(self, producer_id: int, epoch: int, marker: ControlRecord, offset: int, timestamp: int) -> None:
        """A control batch: the marker that ends a transaction. If it raises KafkaError nothing has changed."""
        coordinator_epoch = marker.coordinator_epoch
        assert coordinator_epoch is not None
        entry = self._entry(producer_id)
        if entry is not None:
            entry.check_epoch(self._where, epoch, offset)
            entry.check_coordinator(self._where, coordinator_epoch, offset)
        self._marked.add(producer_id)
        first_offset = self._own(producer_id, entry).end_transaction(epoch, coordinator_epoch, timestamp)
        if first_offset != NO_OFFSET:
            txn = CompletedTxn(producer_id, first_offset, offset, marker.type == ABORT)
            self._ended.append((txn, self._last_stable_offset(txn)))

    def _last_stable_offset(self, txn: CompletedTxn) -> int:
        """As ProducerState.last_stable_offset, as of this batch."""
        ended = {other.first_offset for other, _ in self._ended}
        ended.add(txn.first_offset)
        others = (first for first in chain(self._state.open, self._begun) if first not in ended)
        return next(others, txn.last_offset + 1)

    def _own(self, producer_id: int, entry: ProducerEntry | None) -> ProducerEntry:
        own = self._changed.get(producer_id)
        if own is None:
            own = self._changed[producer_id] = entry.copy() if entry is not None else ProducerEntry(producer_id)
        return own

    def apply(self) -> list[AbortedTxn]:
        """Makes the changes; what they add to the transaction index."""
        state = self._state
        for first_offset, producer_id in self._begun.items():
            state.begin(first_offset, producer_id)
        for entry in self._changed.values():
            state.put(entry)
        aborted = []
        for txn, last_stable_offset in self._ended:
            state.complete(txn)
            if txn.aborted:
                aborted.append(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, last_stable_offset))
        self._changed.clear()
        if self._begun or self._marked:
            for producer_id in self._marked.union(self._begun.values()):
                state.verifications.forget(producer_id)
            self._begun.clear()
            self._ended.clear()
            self._marked.clear()
        return aborted
