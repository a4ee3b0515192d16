"""The changes that a group of batches makes to the producer state; the state changes only after the batches are
written.

Each batch is checked against the state after the batches before it in the group. If the write fails, the producer state
is unchanged. Kafka does the same with one ProducerAppendInfo per producer and append.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.producers.producer_state import NO_OFFSET, BatchNote, CompletedTxn, ProducerEntry, ProducerState
from kafkapy.log.producers.verifications import Verification
from kafkapy.record.control import ABORT, ControlRecord


class ProducerUpdates:
    """Changes to a log's producer state that are pending until `apply` stores them.

    Later batches of the group are checked against these changes first. `verifying`: a transaction may begin only if its
    coordinator has confirmed it (see kafkapy.log.producers.verifications).
    """

    __slots__ = ("_changed", "_state", "_transactions", "_verifying", "_where")

    def __init__(self, state: ProducerState, where: str, *, verifying: bool = False) -> None:
        self._state = state
        self._where = where
        self._verifying = verifying
        self._changed: dict[int, ProducerEntry] = {}
        self._transactions: _Transactions | None = None  # created on first use

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
        """Add a data batch to the pending changes, after checking its epoch and its transaction state.

        `check`: check also its sequence, because a client has sent it. If this raises KafkaError, nothing has changed:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        entry = self._entry(producer_id)
        begins = transactional and (entry is None or entry.txn_first_offset < 0)
        verification = self._verified(producer_id) if begins and self._verifying else None
        if entry is not None and epoch < entry.epoch:  # compared here first, to save a call for most batches
            entry.check_epoch(self._where, epoch, first_offset)
        if verification is not None and check:
            verification.check_sequence(self._where, producer_id, first_sequence, first_offset)
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
            self._transactions_of_group().begun[first_offset] = producer_id

    def _verified(self, producer_id: int) -> Verification:
        """Return the verification of the producer's transaction, which the coordinator has confirmed.

        Raises KafkaError INVALID_TXN_STATE if there is none.
        """
        # A marker in this group has ended the transaction for which the coordinator was asked.
        ended = self._transactions is not None and producer_id in self._transactions.marked
        verification = None if ended else self._state.verifications.of(producer_id)
        if verification is None or not verification.verified:
            raise KafkaError(
                Errors.INVALID_TXN_STATE,
                f"producer {producer_id} has no transaction open in {self._where}, and its coordinator has not "
                "confirmed that one may begin",
            )
        return verification

    def end(self, producer_id: int, epoch: int, marker: ControlRecord, offset: int, timestamp: int) -> None:
        """Add a transaction marker to the pending changes, after checking its producer epoch and coordinator epoch.

        If this raises KafkaError, nothing has changed: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        coordinator_epoch = marker.coordinator_epoch
        assert coordinator_epoch is not None
        entry = self._entry(producer_id)
        if entry is not None:
            entry.check_epoch(self._where, epoch, offset)
            entry.check_coordinator(self._where, coordinator_epoch, offset)
        transactions = self._transactions_of_group()
        transactions.marked.add(producer_id)
        first_offset = self._own(producer_id, entry).end_transaction(epoch, coordinator_epoch, timestamp)
        if first_offset != NO_OFFSET:
            txn = CompletedTxn(producer_id, first_offset, offset, marker.type == ABORT)
            transactions.ended.append((txn, transactions.last_stable_offset(txn, self._state)))

    def _transactions_of_group(self) -> _Transactions:
        if self._transactions is None:
            self._transactions = _Transactions()
        return self._transactions

    def _own(self, producer_id: int, entry: ProducerEntry | None) -> ProducerEntry:
        own = self._changed.get(producer_id)
        if own is None:
            own = self._changed[producer_id] = entry.copy() if entry is not None else ProducerEntry(producer_id)
        return own

    def apply(self) -> Sequence[AbortedTxn]:
        """Store the pending changes in the producer state, and return the new entries for the transaction index."""
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            for first_offset, producer_id in transactions.begun.items():
                self._state.begin(first_offset, producer_id)
        for entry in self._changed.values():
            self._state.put(entry)
        self._changed.clear()
        return () if transactions is None else transactions.apply(self._state)


class _Transactions:
    """The transactions that begin or end in a group of batches, until the changes of the group are applied."""

    __slots__ = ("begun", "ended", "marked")

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}  # first offset -> producer id, like ProducerState.open
        self.ended: list[tuple[CompletedTxn, int]] = []  # with the last stable offset after each
        self.marked: set[int] = set()  # producers with a marker in the group, even if it ended no transaction

    def last_stable_offset(self, txn: CompletedTxn, state: ProducerState) -> int:
        """Return the last stable offset as it will be once `txn` and the transactions ended before it in the group are
        complete.
        """
        ended = {other.first_offset for other, _ in self.ended}
        ended.add(txn.first_offset)
        others = (first for first in chain(state.open, self.begun) if first not in ended)
        return next(others, txn.last_offset + 1)

    def apply(self, state: ProducerState) -> list[AbortedTxn]:
        aborted = []
        for txn, last_stable_offset in self.ended:
            state.complete(txn)
            if txn.aborted:
                aborted.append(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, last_stable_offset))
        for producer_id in self.marked.union(self.begun.values()):
            state.verifications.forget(producer_id)
        return aborted
