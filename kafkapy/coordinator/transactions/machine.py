"""The state machine of one partition of `__transaction_state`, and the handling of requests for its transactional ids.

Each transactional id has at most one state change in progress. Until that change is in the log, other requests for the
id get CONCURRENT_TRANSACTIONS. A failed append changes nothing, so the client can retry. Source: Kafka's
TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kafkapy.coordinator.shard import Effects, Producer, Record
from kafkapy.coordinator.transaction_records import (
    TransactionState,
    decode_key,
    decode_state,
    encode_key,
    encode_state,
)
from kafkapy.coordinator.transactions import transitions
from kafkapy.coordinator.transactions.transitions import (
    DEAD,
    ONGOING,
    PREPARED,
    Initialized,
    TopicPartition,
)
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import records_of

if TYPE_CHECKING:
    from kafkapy._ext.batch import BatchHeader
    from kafkapy.coordinator.room import Room
    from kafkapy.coordinator.shard import Shard
    from kafkapy.coordinator.transactions.completion import Completion
    from kafkapy.coordinator.transactions.maintenance import Maintenance

log = logging.getLogger("kafkapy.coordinator.transactions")

RECORDS_A_SLICE = 40  # records that a load replays before it yields the GIL: about 200 µs

Answer = Callable[["KafkaError | None"], object]
ProducerAnswer = Callable[["KafkaError | Producer"], object]


class Entry:
    """A transactional id in memory. `state` is its state in the log, or None before its first record is in the log.

    pending    the state that is being appended (DEAD for a tombstone), or the complete state that follows once all
               markers are written; None if no state change is in progress
    previous   the producer before the last bump of its epoch, see transitions.Initialized
    unmarked   partitions of a prepared transaction that still need their marker; None without a prepared transaction
    """

    __slots__ = ("pending", "previous", "state", "unmarked")

    def __init__(self, state: TransactionState | None = None) -> None:
        self.state = state
        self.pending: int | None = None
        self.previous: Producer | None = None
        self.unmarked: dict[TopicPartition, None] | None = None


class TransactionMachine:
    """The state machine of one partition of `__transaction_state`. `entries` has the transactional ids; `open` has the
    ids with an open transaction. The class shard.Machine describes when the methods are called."""

    shard: Shard[TransactionMachine]

    def __init__(self, completion: Completion, maintenance: Maintenance, room: Room | None = None) -> None:
        self._room = room
        self.entries: dict[str, Entry] = {}
        self.open: set[str] = set()  # ids with an open transaction, which can time out
        self._replayed = 0  # records since the GIL was last yielded
        self._saw_unknown_keys = False
        self._completion = completion
        self._maintenance = maintenance

    # --- records

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            return
        records = records_of(batch, header)
        for record in records:
            if record.key is None:
                raise ValueError(f"the record at offset {record.offset} has no key")
            self._put(record.key, record.value)
        self._replayed += len(records)
        if self._replayed >= RECORDS_A_SLICE:
            self._replayed = 0
            time.sleep(0)  # yields the GIL: a network thread would otherwise wait for half a millisecond

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        for key, value in records:
            self._put(key, value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        transactional_id = decode_key(key)
        if transactional_id is None:
            if not self._saw_unknown_keys:
                log.warning(
                    "%s has records with keys of a later version of Kafka, which are ignored: %s",
                    self.shard.name,
                    key[:32].hex(),
                )
            self._saw_unknown_keys = True
        elif value is None:
            self.entries.pop(transactional_id, None)
            self.open.discard(transactional_id)
        else:
            state = decode_state(value)
            entry = self.entries.get(transactional_id)
            if entry is None:
                self.entries[transactional_id] = Entry(state)
            else:
                entry.state = state
            if state.state == ONGOING:
                self.open.add(transactional_id)
            else:
                self.open.discard(transactional_id)

    def loaded(self) -> None:
        for transactional_id, entry in list(self.entries.items()):
            if entry.state is not None and entry.state.state in PREPARED:
                log.info(
                    "completing the transaction of %r, which was prepared before this broker became its coordinator",
                    transactional_id,
                )
                self._completion.resume(self, transactional_id, entry)
        self._maintenance.begin(self)

    def unloaded(self, reason: KafkaError) -> None:
        """Forget the transactional ids: the timer refers to this object until its next scan, which may be an hour away.

        The shard (this partition of `__transaction_state`) itself answers pending appends, and work that was scheduled
        for later does not run after the shard has ended.
        """
        self.entries, self.open = {}, set()

    # --- steps

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        fresh_id: int | None,
        answer: ProducerAnswer,
    ) -> Effects:
        """Handle an InitProducerId request: create the transactional id, or give its producer the next epoch. Return
        the record to append; then `answer` is called with the new producer or the error.

        If a transaction is open, the transaction is aborted instead, and the client gets CONCURRENT_TRANSACTIONS, so
        that it retries. `expected` is the producer that the client wants to continue with, or None. `fresh_id` is an
        unused producer id if `needs_producer_id` returned True, else None. This method asks `needs_producer_id` again,
        because the state may have changed since. Raises KafkaError if the request is refused.
        """
        now = self.shard.clock.time_ms()
        entry = self.entries.get(transactional_id)
        if entry is not None:
            _check_free(entry)
        if entry is None and self._room is not None:
            self._room.check(transactional_id)
        if fresh_id is None and self.needs_producer_id(transactional_id, expected):
            raise _concurrent("the id has expired or its epochs were used up while this request was handled")
        if entry is None or entry.state is None:
            assert fresh_id is not None
            entry = self.entries[transactional_id] = Entry()
            new = Initialized(transitions.created(fresh_id, timeout_ms, now), None)
        else:
            transitions.check_init(entry.state, entry.previous, expected)
            if entry.state.state == ONGOING:

                def fenced(error: KafkaError | None) -> None:
                    if error is None:
                        log.info(
                            "the transaction of %r is aborted because a new producer uses its id", transactional_id
                        )
                    answer(error or _concurrent("its open transaction is being aborted"))

                return self._fence(transactional_id, entry, fenced)
            new = transitions.initialized(
                entry.state, entry.previous, expected, producer_id=fresh_id, timeout_ms=timeout_ms, now=now
            )

        def recorded(error: KafkaError | None) -> None:
            if error is None:
                entry.previous = new.previous
            answer(error or transitions.producer_of(new.state))

        return self.move(transactional_id, entry, new.state, recorded)

    def needs_producer_id(self, transactional_id: str, expected: Producer | None) -> bool:
        """Return True if `init_producer_id` needs an unused producer id for this transactional id. The caller gets the
        producer id without holding the lock of the partition, because getting it may block."""
        entry = self.entries.get(transactional_id)
        return entry is None or (entry.state is not None and transitions.needs_producer_id(entry.state, expected))

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], answer: Answer
    ) -> Effects:
        entry, state = self._known(transactional_id, producer)
        _check_free(entry)
        added = transitions.with_partitions(state, partitions, self.shard.clock.time_ms())
        if added is None:
            return Effects(then=answer)
        return self.move(transactional_id, entry, added, answer)

    def end(self, transactional_id: str, producer: Producer, commit: bool, answer: Answer) -> Effects:
        entry, state = self._known(transactional_id, producer)
        _check_free(entry)
        prepared = transitions.prepared(state, commit, self.shard.clock.time_ms())
        if prepared is None:
            return Effects(then=answer)
        return self._prepare(transactional_id, entry, prepared, answer)

    def is_late(self, transactional_id: str) -> bool:
        """Return True if the open transaction of the id has exceeded its time-out and no state change of the id is in
        progress."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.state is None or entry.pending is not None:
            return False
        return transitions.is_timed_out(entry.state, self.shard.clock.time_ms())

    def time_out(self, transactional_id: str) -> Effects | None:
        """If the open transaction of the id has exceeded its time-out, return the record that aborts the transaction
        and fences its producer, else None."""
        if not self.is_late(transactional_id):
            return None
        entry = self.entries[transactional_id]
        assert entry.state is not None
        name = (
            f"the transaction of {transactional_id!r}, open for longer than its timeout of {entry.state.timeout_ms} ms,"
        )

        def done(error: KafkaError | None) -> None:
            if error is None:
                log.info("%s is aborted", name)
            else:
                log.warning("%s could not be aborted yet: %s", name, error)

        return self._fence(transactional_id, entry, done)

    def expire(self, transactional_ids: Collection[str], expiration_ms: int, now: int) -> Effects | None:
        """Return tombstones for those of the transactional ids that have been idle for `expiration_ms` milliseconds, to
        be appended, or None if there are none. `now` is the current time in milliseconds."""
        expired = [
            transactional_id
            for transactional_id in transactional_ids
            if self._is_expired(transactional_id, expiration_ms, now)
        ]
        if not expired:
            return None
        entries = [self.entries[transactional_id] for transactional_id in expired]
        for entry in entries:
            entry.pending = DEAD

        def done(error: KafkaError | None) -> None:
            for entry in entries:
                entry.pending = None
            if error is not None:
                log.warning("%d expired transactional ids could not be deleted yet: %s", len(entries), error)

        return Effects([(encode_key(transactional_id), None) for transactional_id in expired], done)

    def _is_expired(self, transactional_id: str, expiration_ms: int, now: int) -> bool:
        entry = self.entries.get(transactional_id)
        if entry is None or entry.state is None or entry.pending is not None:
            return False
        return transitions.is_expired(entry.state, expiration_ms, now)

    def move(self, transactional_id: str, entry: Entry, state: TransactionState, then: Answer) -> Effects:
        """Return the record of the transactional id's next state, to be appended. Then `then` is called with None or
        the error of the append. Until then, other requests for the id are refused."""
        record = (encode_key(transactional_id), encode_state(state))
        entry.pending = state.state

        def recorded(error: KafkaError | None) -> None:
            entry.pending = None
            if entry.state is None:  # the first record of the id failed
                self.entries.pop(transactional_id, None)
            then(error)

        return Effects([record], recorded)

    def _prepare(self, transactional_id: str, entry: Entry, state: TransactionState, answer: Answer) -> Effects:
        """Return the record of the decision to commit or abort, to be appended. When the record is in the log, begin to
        complete the transaction and answer the client.

        The completion begins before the client is answered. If the completion can finish at once, the client's next
        request does not get CONCURRENT_TRANSACTIONS.
        """

        def recorded(error: KafkaError | None) -> None:
            try:
                if error is None:
                    self._completion.begin(self, transactional_id, entry)
            finally:
                answer(error)

        return self.move(transactional_id, entry, state, recorded)

    def _fence(self, transactional_id: str, entry: Entry, answer: Answer) -> Effects:
        """Return the record that aborts an open transaction with the next producer epoch, to be appended. The new epoch
        fences the transaction's producer."""
        assert entry.state is not None
        fenced = transitions.fenced(entry.state, self.shard.clock.time_ms())

        def recorded(error: KafkaError | None) -> None:
            if error is None:
                entry.previous = None
            answer(error)

        return self._prepare(transactional_id, entry, fenced, recorded)

    # --- reading

    def _known(self, transactional_id: str, producer: Producer) -> tuple[Entry, TransactionState]:
        """Return the entry and the state of a transactional id. Raises KafkaError INVALID_PRODUCER_ID_MAPPING if the id
        is unknown or has another producer id, PRODUCER_FENCED if the producer epoch is another."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.state is None:
            raise KafkaError(Errors.INVALID_PRODUCER_ID_MAPPING, f"there is no transactional id {transactional_id!r}")
        transitions.check_producer(entry.state, producer)
        return entry, entry.state

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """Return those of the partitions that are not in the producer's open transaction.

        Raises KafkaError if the transactional id is unknown, the producer is outdated, or the producer's transaction is
        being completed.
        """
        _, state = self._known(transactional_id, producer)
        if state.state in PREPARED:
            raise _concurrent("the previous transaction is being completed")
        return set(transitions.missing(state.partitions, partitions))


def _check_free(entry: Entry) -> None:
    if entry.pending is not None:
        raise _concurrent("an earlier request for this id is in progress")


def _concurrent(reason: str) -> KafkaError:
    return KafkaError(Errors.CONCURRENT_TRANSACTIONS, reason)
