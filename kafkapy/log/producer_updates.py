"""The changes that a group of appended batches makes to the producer state, kept apart until they are written.

Each batch is checked against the state as the batches before it in the same group leave it, and if the write
fails nothing has happened (Kafka does the same with one ProducerAppendInfo per producer and append).
"""

from __future__ import annotations

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.producer_state import BatchNote, ProducerEntry, ProducerState


class ProducerUpdates:
    """Entries here hide those of the state; `apply` puts them into it."""

    __slots__ = ("_changed", "_state", "_where")

    def __init__(self, state: ProducerState, where: str) -> None:
        self._state = state
        self._where = where
        self._changed: dict[int, ProducerEntry] = {}

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
        """A data batch; `check` its sequence too, which a client's has. Raises KafkaError, and nothing has changed."""
        entry = self._entry(producer_id)
        if entry is not None:
            entry.check_epoch(self._where, epoch, first_offset)
            if check:
                entry.check_sequence(self._where, epoch, first_sequence, first_offset)
        if entry is not None and entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                Errors.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open in {self._where} and sends a batch outside of it "
                f"at offset {first_offset}",
            )
        own = self._own(producer_id, entry)
        own.add(epoch, BatchNote(last_sequence, last_offset, last_offset - first_offset, timestamp))
        if transactional and own.txn_first_offset < 0:
            own.txn_first_offset = first_offset

    def _own(self, producer_id: int, entry: ProducerEntry | None) -> ProducerEntry:
        own = self._changed.get(producer_id)
        if own is None:
            own = self._changed[producer_id] = entry.copy() if entry is not None else ProducerEntry(producer_id)
        return own

    def apply(self) -> None:
        for entry in self._changed.values():
            self._state.put(entry)
        self._changed.clear()
