"""From a prepared transaction to a complete one: its markers, in every partition it wrote to, and then its last record.

Nothing can stop it any more: what fails is tried again, and what a crash interrupts the next load begins anew (a
marker that is written twice does no harm). Source: Kafka's TransactionMarkerChannelManager and
TransactionMarkerRequestCompletionHandler.
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

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.machine import Entry, TransactionMachine

log = logging.getLogger("kafkapy.coordinator.transactions")

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
MOST_INLINE = 32  # markers: about a millisecond
MARKERS_A_SLICE = 8

# A partition that can have no transactional records needs no marker.
_NOTHING_TO_MARK = (Errors.NONE, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION)
# A later epoch of the producer has written there, so the transaction has ended there. That this one is not complete
# yet is what a power cut may leave: our log has lost its end, and that partition has not. A coordinator that another
# one has replaced learns it from its own log. Kafka gives up here, and the id is of no use to anybody from then on.
_ENDED_THERE = Errors.INVALID_PRODUCER_EPOCH


class Markers(Protocol):
    """Writes markers of transactions; `done` is told the error code of each partition, at once or on any thread."""

    def write(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: Sequence[TopicPartition],
        done: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None: ...


class Completion:
    """`exists` says whether there is still such a partition: one that was deleted needs no marker. `in_pool` runs a
    function on another thread: a network thread has no time for many markers."""

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
        """Completes a transaction whose state is prepared, at once where nothing has to wait."""
        _Completing(self, machine, transactional_id, entry).write_markers()

    def resume(self, machine: TransactionMachine, transactional_id: str, entry: Entry) -> None:
        """The same after a load, soon: there may be many of them."""
        completing = _Completing(self, machine, transactional_id, entry)
        machine.shard.after(0, lambda _: completing.write_markers())


class _Completing:
    """One transaction on its way. Its methods run under the shard's lock, but for `_write_many`."""

    def __init__(self, means: Completion, machine: TransactionMachine, transactional_id: str, entry: Entry) -> None:
        assert entry.state is not None
        self._means = means
        self._machine = machine
        self._id = transactional_id
        self._entry = entry
        self._prepared = entry.state
        self._attempts = 0
        self._delay_s = FIRST_RETRY_S
        self._unanswered = 0
        self._failed: dict[TopicPartition, int] = {}
        self._left = entry.unmarked = dict.fromkeys(transitions.one_by_one(entry.state.partitions))
        entry.pending = transitions.completed(entry.state, 0).state

    def write_markers(self) -> None:
        self._attempts += 1
        for one in [one for one in self._left if not self._means.exists(*one)]:
            del self._left[one]
        left = list(self._left)
        self._unanswered = len(left)
        self._failed = {}
        if not left:
            self._machine.shard.run(lambda _: self._record())
        elif len(left) <= MOST_INLINE:
            self._write(left)
        else:
            self._means.in_pool(lambda: self._write_many(left))

    def _write_many(self, partitions: list[TopicPartition]) -> None:
        for at in range(0, len(partitions), MARKERS_A_SLICE):
            self._write(partitions[at : at + MARKERS_A_SLICE])
            time.sleep(0)  # lets a network thread have the interpreter

    def _write(self, partitions: list[TopicPartition]) -> None:
        prepared = self._prepared
        self._means.markers.write(
            prepared.producer_id,
            prepared.producer_epoch,
            self._machine.shard.leader_epoch,
            prepared.state == PREPARE_COMMIT,
            partitions,
            self._written,
        )

    def _written(self, codes: Mapping[TopicPartition, int]) -> None:
        try:
            self._machine.shard.run(lambda _: self._judge(codes))
        except KafkaError as error:  # the shard has ended; its next load goes on
            log.info("the completion of %r ends here: %s", self._id, error)

    def _judge(self, codes: Mapping[TopicPartition, int]) -> Effects | None:
        self._unanswered -= len(codes)
        for one, code in codes.items():
            if code in _NOTHING_TO_MARK:
                self._left.pop(one, None)
            elif code == _ENDED_THERE:
                log.warning(
                    "%s-%d needs no marker of epoch %d of %r: it has a later one, of which __transaction_state "
                    "does not know (has it lost its end in a power cut?)",
                    *one,
                    self._prepared.producer_epoch,
                    self._id,
                )
                self._left.pop(one, None)
            else:
                self._failed[one] = code
        if self._unanswered:
            return None
        if not self._left:
            return self._record()
        for (topic, index), code in self._failed.items():
            if code == Errors.TRANSACTION_COORDINATOR_FENCED:  # one that was elected since decides
                log.warning("%r gets no marker in %s-%d: %s", self._id, topic, index, name_of(code))
                return None
        (topic, index), code = next(iter(self._failed.items()))
        self._retry(
            self.write_markers,
            f"{len(self._failed)} markers are missing, one in {topic}-{index} because of {name_of(code)}",
        )
        return None

    def _record(self) -> Effects:
        """All markers are there."""
        state = transitions.completed(self._prepared, self._machine.shard.clock.time_ms())

        def recorded(error: KafkaError | None) -> None:
            if error is None:
                self._entry.unmarked = None
            else:
                self._entry.pending = state.state  # nobody comes between
                self._attempts += 1
                self._retry(self._record, str(error))

        return self._machine.move(self._id, self._entry, state, recorded)

    def _retry(self, step: Callable[[], Effects | None], reason: str) -> None:
        if self._attempts & (self._attempts - 1) == 0:  # the 1st, 2nd, 4th ... attempt
            log.info("the transaction of %r is not complete yet, attempt %d: %s", self._id, self._attempts, reason)
        self._machine.shard.after(self._delay_s, lambda _: step())
        self._delay_s = min(2 * self._delay_s, LAST_RETRY_S)
