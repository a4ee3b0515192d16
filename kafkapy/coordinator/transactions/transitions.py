"""The state changes of a transactional id. Each function takes a state and the values of a request, and returns the
next state or raises KafkaError.

States are immutable. The error codes are those that Kafka 3.9 sends to clients of the newest version. Source: Kafka's
TransactionMetadata, and the checks in TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.transaction_records import STATES, TransactionState
from kafkapy.errors import Errors, KafkaError

EMPTY = STATES.index("Empty")
ONGOING = STATES.index("Ongoing")
PREPARE_COMMIT = STATES.index("PrepareCommit")
PREPARE_ABORT = STATES.index("PrepareAbort")
COMPLETE_COMMIT = STATES.index("CompleteCommit")
COMPLETE_ABORT = STATES.index("CompleteAbort")
DEAD = STATES.index("Dead")

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)  # committed or aborted; markers are being written
IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)  # no transaction is open

# Clients never get the last epoch, so that the coordinator can always fence a client by one more epoch.
_LAST_EPOCH = 32767
NO_TIME = -1

TopicPartition = tuple[str, int]
Partitions = tuple[tuple[str, tuple[int, ...]], ...]  # partition ids by topic, as in a record


class Initialized(NamedTuple):
    """The outcome of InitProducerId: the next state of the transactional id. The client gets the producer id and epoch
    in that state once the state is in the log.

    `previous` is the producer before its epoch was bumped. If a client asks for the next epoch of that producer again,
    the client has missed the response. `previous` is kept in memory only, as in Kafka: after a restart of the broker,
    such a producer is fenced.
    """

    state: TransactionState
    previous: Producer | None


def producer_of(state: TransactionState) -> Producer:
    return Producer(state.producer_id, state.producer_epoch)


def is_exhausted(epoch: int) -> bool:
    """Return True if a producer's epoch cannot be bumped any more, so that the producer needs a new producer id."""
    return epoch >= _LAST_EPOCH - 1


# --- InitProducerId


def created(producer_id: int, timeout_ms: int, now: int) -> TransactionState:
    """Return the first state of a new transactional id: state Empty, with epoch 0 of `producer_id`. `now` is the
    current time in milliseconds."""
    return TransactionState(producer_id, 0, timeout_ms, EMPTY, (), now, NO_TIME)


def check_init(state: TransactionState, previous: Producer | None, expected: Producer | None) -> None:
    """Raise KafkaError if InitProducerId is not allowed in this state: CONCURRENT_TRANSACTIONS while transaction
    markers are being written, PRODUCER_FENCED if the client's producer is outdated.

    `expected` is the producer that the client wants to continue with (KIP-360), or None for a new client. The epoch of
    `expected` is not checked here: if a transaction is open, it is aborted in any case, and otherwise `initialized`
    checks the epoch.
    """
    if expected is not None and expected.id != state.producer_id and expected != previous:
        raise KafkaError(Errors.PRODUCER_FENCED, f"the producer id is {state.producer_id}, not {expected.id}")
    if state.state in PREPARED:
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the previous transaction is being completed")


def needs_producer_id(state: TransactionState, expected: Producer | None) -> bool:
    """Return True if `initialized` needs a new producer id, because the epochs of the current one are used up."""
    return (
        state.state in IDLE
        and is_exhausted(state.producer_epoch)
        and (expected is None or expected.epoch == state.producer_epoch)
    )


def initialized(
    state: TransactionState,
    previous: Producer | None,
    expected: Producer | None,
    *,
    producer_id: int | None,
    timeout_ms: int,
    now: int,
) -> Initialized:
    """Return the next state with the producer's next epoch, or with epoch 0 of `producer_id` if the epochs of the
    current producer id are used up.

    `check_init` must be called before, and no transaction may be open. `expected` is the producer that the client wants
    to continue with, or None for a new client. If it is `previous`, the client has missed a response, and the current
    epoch is kept. Raises KafkaError PRODUCER_FENCED if `expected` is neither the current producer nor `previous`, and
    ValueError if a new producer id is needed but `producer_id` is None.
    """
    current = producer_of(state)
    if expected is not None and expected != current:
        if expected != previous:
            raise KafkaError(Errors.PRODUCER_FENCED, f"the producer is {current}, not {expected}")
        bumped = current  # this producer was bumped before and missed the response
    else:
        previous = expected
        if not is_exhausted(current.epoch):
            bumped = Producer(current.id, current.epoch + 1)
        elif producer_id is not None:
            bumped = Producer(producer_id, 0)
        else:
            raise ValueError(f"{current} needs a new producer id")
    return Initialized(TransactionState(*bumped, timeout_ms, EMPTY, (), now, NO_TIME), previous)


def fenced(state: TransactionState, now: int) -> TransactionState:
    """Return the state PrepareAbort that follows an open transaction, with the next producer epoch. No client gets this
    epoch, so the transaction's producer is fenced.

    This is Kafka's PrepareEpochFence and the following PrepareAbort in one step. A client that already uses the very
    last epoch, which the coordinator never hands out, keeps that epoch, because there is no higher one.
    """
    epoch = min(state.producer_epoch + 1, _LAST_EPOCH)
    return state._replace(producer_epoch=epoch, state=PREPARE_ABORT, last_update_ms=now)


# --- requests of a producer


def check_producer(state: TransactionState, producer: Producer) -> None:
    """Raise KafkaError INVALID_PRODUCER_ID_MAPPING if the transactional id now has another producer id, PRODUCER_FENCED
    if its producer has another epoch."""
    if producer.id != state.producer_id:
        raise KafkaError(
            Errors.INVALID_PRODUCER_ID_MAPPING, f"the producer id is {state.producer_id}, not {producer.id}"
        )
    if producer.epoch != state.producer_epoch:
        raise KafkaError(Errors.PRODUCER_FENCED, f"the producer epoch is {state.producer_epoch}, not {producer.epoch}")


def with_partitions(
    state: TransactionState, partitions: Collection[TopicPartition], now: int
) -> TransactionState | None:
    """Return the state Ongoing with the partitions added to the transaction, or None if the open transaction already
    has them all. Raises KafkaError CONCURRENT_TRANSACTIONS while the previous transaction is being completed."""
    if state.state in PREPARED:
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the previous transaction is being completed")
    if state.state == ONGOING:
        if not missing(state.partitions, partitions):
            return None
        start_ms = state.start_ms
    else:
        start_ms = now
    return state._replace(
        state=ONGOING, partitions=joined(state.partitions, partitions), last_update_ms=now, start_ms=start_ms
    )


def prepared(state: TransactionState, commit: bool, now: int) -> TransactionState | None:
    """Return the state PrepareCommit that follows an open transaction, or PrepareAbort if `commit` is False. Return
    None if the transaction has already ended with the same result.

    Raises KafkaError CONCURRENT_TRANSACTIONS while the transaction is being completed with the same result,
    INVALID_TXN_STATE in any other state.
    """
    if state.state == ONGOING:
        return state._replace(state=PREPARE_COMMIT if commit else PREPARE_ABORT, last_update_ms=now)
    if state.state == (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
        return None
    if state.state == (PREPARE_COMMIT if commit else PREPARE_ABORT):
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the transaction is being completed")
    wanted = "a commit" if commit else "an abort"
    raise KafkaError(Errors.INVALID_TXN_STATE, f"{wanted} cannot follow the state {state.state_name}")


def completed(state: TransactionState, now: int) -> TransactionState:
    """Return the state that follows a prepared transaction when all its markers are written: CompleteCommit or
    CompleteAbort."""
    done = COMPLETE_COMMIT if state.state == PREPARE_COMMIT else COMPLETE_ABORT
    return state._replace(state=done, partitions=(), last_update_ms=now)


# --- time


def is_timed_out(state: TransactionState, now: int) -> bool:
    return state.state == ONGOING and state.start_ms + state.timeout_ms < now


def is_expired(state: TransactionState, expiration_ms: int, now: int) -> bool:
    """Return True if no transaction is open and the state has not changed for `expiration_ms` milliseconds, so that the
    transactional id can be deleted."""
    return state.state in IDLE and state.last_update_ms <= now - expiration_ms


# --- partitions of a transaction


def joined(partitions: Partitions, added: Iterable[TopicPartition]) -> Partitions:
    """Return the union of `partitions` and `added`, grouped by topic."""
    by_topic: dict[str, dict[int, None]] = {topic: dict.fromkeys(indexes) for topic, indexes in partitions}
    for topic, index in added:
        by_topic.setdefault(topic, {})[index] = None
    return tuple((topic, tuple(indexes)) for topic, indexes in by_topic.items())


def missing(partitions: Partitions, asked: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those of the (topic, partition) pairs in `asked` that are not in `partitions`."""
    by_topic = {topic: frozenset(indexes) for topic, indexes in partitions}
    return [(topic, index) for topic, index in asked if index not in by_topic.get(topic, ())]


def flattened(partitions: Partitions) -> list[TopicPartition]:
    return [(topic, index) for topic, indexes in partitions for index in indexes]
