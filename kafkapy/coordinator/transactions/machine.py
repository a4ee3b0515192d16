"""The transactional ids of one partition of `__transaction_state`, and the steps that requests take.

One change of an id is under way at a time: until it is in the log, whoever comes is told CONCURRENT_TRANSACTIONS. An
append that fails changes nothing, so the client may try again. Source: Kafka's TransactionCoordinator and
TransactionStateManager.
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
    from kafkapy.coordinator.shard import Shard
    from kafkapy.coordinator.transactions.completion import Completion
    from kafkapy.coordinator.transactions.upkeep import Upkeep

log = logging.getLogger("kafkapy.coordinator.transactions")

RECORDS_A_SLICE = 40  # of a load: about 200 µs

Answer = Callable[["KafkaError | None"], object]
ProducerAnswer = Callable[["KafkaError | Producer"], object]


class Entry:
    """One transactional id. `state` is what the log holds, None before the first record; the rest is not recorded.

    `pending`: the state that it is on its way to (DEAD for a tombstone); also while markers are written. `previous`:
    see transitions.Initialized. `unmarked`: the partitions of a prepared transaction that wait for their marker.
    """

    __slots__ = ("pending", "previous", "state", "unmarked")

    def __init__(self, state: TransactionState | None = None) -> None:
        self.state = state
        self.pending: int | None = None
        self.previous: Producer | None = None
        self.unmarked: dict[TopicPartition, None] | None = None


class TransactionMachine:
    """A shard's machine; see kafkapy.coordinator.shard for who calls it, and when."""

    shard: Shard[TransactionMachine]

    def __init__(self, completion: Completion, upkeep: Upkeep) -> None:
        self.entries: dict[str, Entry] = {}
        self.open: set[str] = set()  # ids with an open transaction: those that can time out
        self._replayed = 0  # since the last pause
        self._has_strange_records = False
        self._completion = completion
        self._upkeep = upkeep

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
            time.sleep(0)  # lets a network thread have the interpreter, which else waits for half a millisecond

    def apply(self, records: Sequence[Record], producer: Producer | None) -> None:
        for key, value in records:
            self._put(key, value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        transactional_id = decode_key(key)
        if transactional_id is None:
            if not self._has_strange_records:
                log.warning(
                    "%s: records with keys of a later version are left alone: %s", self.shard.name, key[:32].hex()
                )
            self._has_strange_records = True
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
                log.info("completing the transaction of %r, which was prepared before", transactional_id)
                self._completion.resume(self, transactional_id, entry)
        self._upkeep.begin(self)

    def unloaded(self, reason: KafkaError) -> None:
        """Appends under way are answered by the shard; its timers find it ended."""

    # --- steps

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        fresh_id: int | None,
        answer: ProducerAnswer,
    ) -> Effects:
        """`fresh_id`: a producer id nobody has, where `needs_producer_id` asked for one."""
        now = self.shard.clock.time_ms()
        entry = self.entries.get(transactional_id)
        if entry is not None:
            _check_free(entry)
        if fresh_id is None and self.needs_producer_id(transactional_id, expected):
            raise _concurrent("since it was looked at, it was forgotten, or its epochs were used up")
        if entry is None or entry.state is None:
            assert fresh_id is not None
            entry = self.entries[transactional_id] = Entry()
            new = Initialized(transitions.created(fresh_id, timeout_ms, now), None)
        else:
            transitions.check_init(entry.state, entry.previous, expected)
            if entry.state.state == ONGOING:

                def fenced(error: KafkaError | None) -> None:
                    if error is None:
                        log.info("the transaction of %r is aborted, for a new producer has come", transactional_id)
                    answer(error or _concurrent("its transaction is aborted"))

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
        """Whether `init_producer_id` needs an id, which is to be had outside the lock: it may wait for the disk."""
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
        """Whether the transaction is open too long, and nothing else happens to it."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.state is None or entry.pending is not None:
            return False
        return transitions.is_timed_out(entry.state, self.shard.clock.time_ms())

    def time_out(self, transactional_id: str) -> Effects | None:
        """Aborts the transaction if it is late."""
        if not self.is_late(transactional_id):
            return None
        entry = self.entries[transactional_id]
        assert entry.state is not None
        name = f"the transaction of {transactional_id!r}, open longer than its {entry.state.timeout_ms} ms,"

        def told(error: KafkaError | None) -> None:
            if error is None:
                log.info("%s is aborted", name)
            else:
                log.warning("%s could not be aborted yet: %s", name, error)

        return self._fence(transactional_id, entry, told)

    def forget(self, transactional_ids: Collection[str], expiration_ms: int, now: int) -> Effects | None:
        """Tombstones for those that are idle for so long."""
        expired = [one for one in transactional_ids if self._is_expired(one, expiration_ms, now)]
        if not expired:
            return None
        entries = [self.entries[one] for one in expired]
        for entry in entries:
            entry.pending = DEAD

        def forgotten(error: KafkaError | None) -> None:
            for entry in entries:
                entry.pending = None
            if error is not None:
                log.warning("%d expired transactional ids could not be forgotten yet: %s", len(entries), error)

        return Effects([(encode_key(one), None) for one in expired], forgotten)

    def _is_expired(self, transactional_id: str, expiration_ms: int, now: int) -> bool:
        entry = self.entries.get(transactional_id)
        if entry is None or entry.state is None or entry.pending is not None:
            return False
        return transitions.is_expired(entry.state, expiration_ms, now)

    def move(self, transactional_id: str, entry: Entry, state: TransactionState, then: Answer) -> Effects:
        """Records the id's next state; `then` is told how that went."""
        record = (encode_key(transactional_id), encode_state(state))
        entry.pending = state.state

        def recorded(error: KafkaError | None) -> None:
            entry.pending = None
            if entry.state is None:  # its first record failed
                self.entries.pop(transactional_id, None)
            then(error)

        return Effects([record], recorded)

    def _prepare(self, transactional_id: str, entry: Entry, state: TransactionState, answer: Answer) -> Effects:
        """With this record the transaction is decided, and its client is told so, however long completing it takes.

        What can be done at once is done before: a client that goes on is not told CONCURRENT_TRANSACTIONS then.
        """

        def recorded(error: KafkaError | None) -> None:
            try:
                if error is None:
                    self._completion.begin(self, transactional_id, entry)
            finally:
                answer(error)

        return self.move(transactional_id, entry, state, recorded)

    def _fence(self, transactional_id: str, entry: Entry, answer: Answer) -> Effects:
        assert entry.state is not None
        fenced = transitions.fenced(entry.state, self.shard.clock.time_ms())

        def recorded(error: KafkaError | None) -> None:
            if error is None:
                entry.previous = None
            answer(error)

        return self._prepare(transactional_id, entry, fenced, recorded)

    # --- what is there

    def _known(self, transactional_id: str, producer: Producer) -> tuple[Entry, TransactionState]:
        """Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.state is None:
            raise KafkaError(Errors.INVALID_PRODUCER_ID_MAPPING, f"there is no transactional id {transactional_id!r}")
        transitions.check_producer(entry.state, producer)
        return entry, entry.state

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """Those that are not in the producer's open transaction. Raises KafkaError where none of them can be."""
        _, state = self._known(transactional_id, producer)
        if state.state in PREPARED:
            raise _concurrent("the last transaction is being completed")
        return set(transitions.missing(state.partitions, partitions))


def _check_free(entry: Entry) -> None:
    if entry.pending is not None:
        raise _concurrent("an earlier request is being carried out")


def _concurrent(reason: str) -> KafkaError:
    return KafkaError(Errors.CONCURRENT_TRANSACTIONS, reason)
