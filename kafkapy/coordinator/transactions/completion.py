"""Completes a transaction that is prepared to commit or abort: writes the transaction marker to every partition of the
transaction, then the record of the complete state to `__transaction_state`.

Failures are retried until they succeed. If the broker crashes, the next load of the partition of `__transaction_state`
starts the completion again; a marker that is written twice does no harm. Source: Kafka's
TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkapy.coordinator.shard import Effects
from kafkapy.coordinator.transactions import transitions
from kafkapy.coordinator.transactions.transitions import PREPARE_COMMIT, TopicPartition
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.record.control import Marker
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.machine import Entry, TransactionMachine

log = logging.getLogger("kafkapy.coordinator.transactions")

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
MAX_INLINE = 32  # markers written on the calling thread: about a millisecond
MARKERS_A_SLICE = 8

# These codes mean that no marker is needed: the partition cannot have transactional records.
_NEEDS_NO_MARKER = (Errors.NONE, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION)
# A later epoch of the producer has written to the partition, so the transaction has already ended there. This happens
# if a power cut removed the end of the log of `__transaction_state` but not of that partition's log. (If another
# coordinator had taken over, the log of `__transaction_state` would say so.) Kafka stops retrying here, and the
# transactional id stays unusable.
_ENDED_THERE = Errors.INVALID_PRODUCER_EPOCH


class Markers(Protocol):
    """The interface that writes transaction markers to partitions.

    `write` appends the marker to each of the partitions and calls `done`, at once or later on any thread, with an error
    code for each partition. `done` may be called several times, each time with some of the partitions. A marker that
    must wait is dropped without a call of `done` if `is_needed()` returns False by then.
    """

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[Mapping[TopicPartition, int]], None],
        is_needed: Callable[[], bool],
    ) -> None: ...


class Completion:
    """Completes prepared transactions: writes their markers and then their complete state.

    `exists(topic, partition)` returns False for a deleted partition, which needs no marker. `in_pool` runs a function
    on another thread, because writing many markers would block a network thread for too long; it may raise NoThread or
    PoolStopped.
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
        """Begin to complete a prepared transaction. If there are few markers and nothing has to wait, the transaction
        is complete when this returns."""
        _PreparedTransaction(self, machine, transactional_id, entry).write_markers()

    def resume(self, machine: TransactionMachine, transactional_id: str, entry: Entry) -> None:
        """Complete a prepared transaction that was found while loading a partition of `__transaction_state`. The work
        is scheduled and begins after this returns, because a load may find many such transactions."""
        completing = _PreparedTransaction(self, machine, transactional_id, entry)
        machine.shard.after(0, lambda _: completing.write_markers())


class _PreparedTransaction:
    """A prepared transaction whose markers are being written. The methods that change its state run under the lock of
    the shard (the partition of `__transaction_state` with its state machine)."""

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
        self._writer: int | None = None  # the thread that is in a call of `markers.write`
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
            try:
                self._completion.in_pool(lambda: self._write_many(unmarked))
            except (NoThread, PoolStopped) as error:
                self._retry(self.write_markers, str(error))

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
        self._writer = threading.get_ident()
        try:
            self._completion.markers.write(marker, partitions, self._written, self._is_needed)
        finally:
            self._writer = None

    def _is_needed(self) -> bool:
        """Return False if the shard has ended: the coordinator of the next leader epoch sends its own markers."""
        return not self._machine.shard.has_ended

    def _written(self, codes: Mapping[TopicPartition, int]) -> None:
        if self._writer != threading.get_ident():
            # This thread may hold the lock of a group shard: a commit that it appends there may raise the high
            # watermark that this marker was waiting for. A thread with that lock must not wait for the lock of a
            # transaction shard, see `Shard`. So the timer's thread, which holds no lock, handles the result.
            self._machine.shard.after(0, lambda _: self._handle_codes(codes))
            return
        try:
            self._machine.shard.run(lambda _: self._handle_codes(codes))
        except KafkaError as error:  # the shard has ended; its next load resumes the completion
            log.info("this broker stops completing the transaction of %r: %s", self._id, error)

    def _handle_codes(self, codes: Mapping[TopicPartition, int]) -> Effects | None:
        self._unanswered -= len(codes)
        for partition, code in codes.items():
            if code in _NEEDS_NO_MARKER:
                self._unmarked.pop(partition, None)
            elif code == _ENDED_THERE:
                log.warning(
                    "%s-%d gets no marker of producer epoch %d of %r: it has records of a later epoch, which "
                    "__transaction_state lacks (was the end of that log lost in a power cut?)",
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
        """Return the record that makes the transaction complete, to be appended. All markers are written by now."""
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
