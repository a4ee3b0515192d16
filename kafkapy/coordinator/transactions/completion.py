"""Completes a prepared transaction: writes its marker to every partition, then the record of the complete state.

Failures are retried until they succeed, and a load resumes what a crash interrupted; a marker written twice does no
harm. Source: Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkapy.coordinator.shard import Effects
from kafkapy.coordinator.transactions import transitions
from kafkapy.coordinator.transactions.transitions import PREPARE_COMMIT, TopicPartition
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.record.control import Marker

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.machine import Entry, TransactionMachine

log = logging.getLogger("kafkapy.coordinator.transactions")

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
MAX_INLINE = 32  # markers written on the calling thread: about a millisecond
MARKERS_A_SLICE = 8

# These codes mean that no marker is needed: the partition cannot have transactional records.
_NEEDS_NO_MARKER = (Errors.NONE, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION)
# A later epoch of the producer has written to the partition, so the transaction has already ended there. This happens
# if a power cut removed the end of our log but not of that partition's. (If another coordinator had taken over, our own
# log would say so.) Kafka stops retrying here, and the transactional id stays unusable.
_ENDED_THERE = Errors.INVALID_PRODUCER_EPOCH


class Markers(Protocol):
    """Writes transaction markers. `done` gets the error code of each partition, at once or on any thread."""

    def write(
        self, marker: Marker, partitions: Sequence[TopicPartition], done: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None: ...


class Completion:
    """Completes transactions.

    `exists` returns whether a partition still exists: a deleted partition needs no marker. `in_pool` runs a function on
    another thread, because many markers would block a network thread for too long.
    """

    def __init__(
        self,
        markers: Markers,
        exists: Callable[[str, int], bool],
        in_pool: Callable[[Callable[[], None]], object],
    ) -> None:
        self.markers = markers
        self.exists = exists
        self.in_pool = in_pool

    def begin(self, machine: TransactionMachine, transactional_id: str, entry: Entry) -> None:
        """Complete a prepared transaction; with few markers and no waiting, before this returns."""
        _PreparedTransaction(self, machine, transactional_id, entry).write_markers()

    def resume(self, machine: TransactionMachine, transactional_id: str, entry: Entry) -> None:
        """Complete a prepared transaction found by a load, in a later step: a load may find many."""
        completing = _PreparedTransaction(self, machine, transactional_id, entry)
        machine.shard.after(0, lambda _: completing.write_markers())


class _PreparedTransaction:
    """A prepared transaction until it is complete. The methods run under the shard's lock, except `_write_many`."""

    def __init__(self, means: Completion, machine: TransactionMachine, transactional_id: str, entry: Entry) -> None:
        assert entry.state is not None
        self._completion = means
        self._machine = machine
        self._id = transactional_id
        self._entry = entry
        self._prepared = entry.state
        self._attempts = 0
        self._delay_s = FIRST_RETRY_S
        self._unanswered = 0
        self._failed: dict[TopicPartition, int] = {}
        self._unmarked = entry.unmarked = dict.fromkeys(transitions.flattened(entry.state.partitions))
        entry.pending = transitions.completed(entry.state, 0).state

    def write_markers(self) -> None:
        self._attempts += 1
        for partition in [partition for partition in self._unmarked if not self._completion.exists(*partition)]:
            del self._unmarked[partition]
        unmarked = list(self._unmarked)
        self._unanswered = len(unmarked)
        self._failed = {}
        if not unmarked:
            self._machine.shard.run(lambda _: self._record())
        elif len(unmarked) <= MAX_INLINE:
            self._write(unmarked)
        else:
            self._completion.in_pool(lambda: self._write_many(unmarked))

    def _write_many(self, partitions: list[TopicPartition]) -> None:
        for at in range(0, len(partitions), MARKERS_A_SLICE):
            self._write(partitions[at : at + MARKERS_A_SLICE])
            time.sleep(0)  # releases the GIL, so that a network thread can run

    def _write(self, partitions: list[TopicPartition]) -> None:
        prepared = self._prepared
        marker = Marker(
            prepared.producer_id,
            prepared.producer_epoch,
            self._machine.shard.leader_epoch,
            prepared.state == PREPARE_COMMIT,
        )
        self._completion.markers.write(marker, partitions, self._written)

    def _written(self, codes: Mapping[TopicPartition, int]) -> None:
        try:
            self._machine.shard.run(lambda _: self._handle_codes(codes))
        except KafkaError as error:  # the shard has ended; its next load resumes this
            log.info("this broker stops completing the transaction of %r: %s", self._id, error)

    def _handle_codes(self, codes: Mapping[TopicPartition, int]) -> Effects | None:
        self._unanswered -= len(codes)
        for partition, code in codes.items():
            if code in _NEEDS_NO_MARKER:
                self._unmarked.pop(partition, None)
            elif code == _ENDED_THERE:
                log.warning(
                    "%s-%d gets no marker of producer epoch %d of %r: it has a later epoch, which __transaction_state "
                    "lacks (was the end of its log lost in a power cut?)",
                    *partition,
                    self._prepared.producer_epoch,
                    self._id,
                )
                self._unmarked.pop(partition, None)
            else:
                self._failed[partition] = code
        if self._unanswered:
            return None
        if not self._unmarked:
            return self._record()
        for (topic, index), code in self._failed.items():
            if code == Errors.TRANSACTION_COORDINATOR_FENCED:  # another coordinator has taken over
                log.warning(
                    "the marker of %r in %s-%d is refused, another coordinator has taken over: %s",
                    self._id,
                    topic,
                    index,
                    name_of(code),
                )
                return None
        (topic, index), code = next(iter(self._failed.items()))
        self._retry(
            self.write_markers,
            f"{len(self._failed)} markers are missing, the one in {topic}-{index} because of {name_of(code)}",
        )
        return None

    def _record(self) -> Effects:
        """Return the record that makes the transaction complete, now that all markers are written."""
        state = transitions.completed(self._prepared, self._machine.shard.clock.time_ms())

        def recorded(error: KafkaError | None) -> None:
            if error is None:
                self._entry.unmarked = None
            else:
                self._entry.pending = state.state  # refuses other requests until the retry
                self._attempts += 1
                self._retry(self._record, str(error))

        return self._machine.move(self._id, self._entry, state, recorded)

    def _retry(self, step: Callable[[], Effects | None], reason: str) -> None:
        if self._attempts & (self._attempts - 1) == 0:  # the 1st, 2nd, 4th ... attempt
            log.info("the transaction of %r is not complete yet, attempt %d: %s", self._id, self._attempts, reason)
        self._machine.shard.after(self._delay_s, lambda _: step())
        self._delay_s = min(2 * self._delay_s, LAST_RETRY_S)
