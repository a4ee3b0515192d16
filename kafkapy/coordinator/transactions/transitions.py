"""The state changes of a transactional id, as functions from a state and a request to the next state or a KafkaError.

States are immutable. The error codes are those of Kafka 3.9 for clients of the newest version. Source: Kafka's
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
    """The outcome of InitProducerId: the next state, whose producer the client gets once the state is in the log.

    `previous`: the producer whose epoch was bumped. If it asks again, it has missed the response. Kept in memory only,
    as in Kafka: after a restart such a producer is fenced.
    """

    state: TransactionState
    previous: Producer | None


def producer_of(state: TransactionState) -> Producer:
    return Producer(state.producer_id, state.producer_epoch)


def is_exhausted(epoch: int) -> bool:
    """Return True if a client's epoch cannot be bumped any more, so that it needs a new producer id."""
    return epoch >= _LAST_EPOCH - 1


# --- InitProducerId


def created(producer_id: int, timeout_ms: int, now: int) -> TransactionState:
    """Return the first state of a new transactional id."""
    return TransactionState(producer_id, 0, timeout_ms, EMPTY, (), now, NO_TIME)


def check_init(state: TransactionState, previous: Producer | None, expected: Producer | None) -> None:
    """Raise CONCURRENT_TRANSACTIONS while markers are written, PRODUCER_FENCED if the client's producer is outdated.

    `expected`: the producer that the client wants to continue with (KIP-360), None for a new client. Its epoch is not
    checked while a transaction is open, which is aborted in any case.
    """
    if expected is not None and expected.id != state.producer_id and expected != previous:
        raise KafkaError(Errors.PRODUCER_FENCED, f"the producer id is {state.producer_id}, not {expected.id}")
    if state.state in PREPARED:
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the previous transaction is being completed")


def needs_producer_id(state: TransactionState, expected: Producer | None) -> bool:
    """Return True if `initialized` needs a new producer id because the epochs are used up."""
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
    """Return the state with the producer's next epoch, or with epoch 0 of `producer_id` if the epochs are used up.

    Call `check_init` before; the state has no open transaction. Raises PRODUCER_FENCED.
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
    """Return the aborted state of an open transaction with the next epoch, which no client gets.

    This is Kafka's PrepareEpochFence and the following PrepareAbort in one step. A client that already uses the very
    last epoch, which the coordinator never hands out, keeps it, because there is no higher epoch.
    """
    epoch = min(state.producer_epoch + 1, _LAST_EPOCH)
    return state._replace(producer_epoch=epoch, state=PREPARE_ABORT, last_update_ms=now)


# --- requests of a producer


def check_producer(state: TransactionState, producer: Producer) -> None:
    """Raise INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED unless this is the id's present producer."""
    if producer.id != state.producer_id:
        raise KafkaError(
            Errors.INVALID_PRODUCER_ID_MAPPING, f"the producer id is {state.producer_id}, not {producer.id}"
        )
    if producer.epoch != state.producer_epoch:
        raise KafkaError(Errors.PRODUCER_FENCED, f"the producer epoch is {state.producer_epoch}, not {producer.epoch}")


def with_partitions(
    state: TransactionState, partitions: Collection[TopicPartition], now: int
) -> TransactionState | None:
    """Return the ongoing state with the partitions added, or None if it has them. Raises CONCURRENT_TRANSACTIONS."""
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
    """Return the prepared state, or None if the transaction has already ended with the same result.

    Raises INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS.
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
    """Return the complete state that follows a prepared one."""
    done = COMPLETE_COMMIT if state.state == PREPARE_COMMIT else COMPLETE_ABORT
    return state._replace(state=done, partitions=(), last_update_ms=now)


# --- time


def is_timed_out(state: TransactionState, now: int) -> bool:
    return state.state == ONGOING and state.start_ms + state.timeout_ms < now


def is_expired(state: TransactionState, expiration_ms: int, now: int) -> bool:
    """Return True if the id has been idle for `expiration_ms`."""
    return state.state in IDLE and state.last_update_ms <= now - expiration_ms


# --- partitions of a transaction


def joined(partitions: Partitions, added: Iterable[TopicPartition]) -> Partitions:
    """Return the union of both sets of partitions."""
    by_topic: dict[str, dict[int, None]] = {topic: dict.fromkeys(indexes) for topic, indexes in partitions}
    for topic, index in added:
        by_topic.setdefault(topic, {})[index] = None
    return tuple((topic, tuple(indexes)) for topic, indexes in by_topic.items())


def missing(partitions: Partitions, asked: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those of `asked` that are not in `partitions`."""
    by_topic = {topic: frozenset(indexes) for topic, indexes in partitions}
    return [(topic, index) for topic, index in asked if index not in by_topic.get(topic, ())]


def flattened(partitions: Partitions) -> list[TopicPartition]:
    return [(topic, index) for topic, indexes in partitions for index in indexes]
