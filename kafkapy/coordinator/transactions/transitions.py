"""What becomes of a transactional id: functions from a state and a request to the next state, or to a refusal.

A TransactionState is what the log holds; nothing here changes one. Refusals are KafkaError with the codes of Kafka
3.9, for clients of the newest version. Source: Kafka's TransactionMetadata, and the checks in TransactionCoordinator.
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

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)  # decided; markers are being written
IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)  # no transaction is open

# The last epoch is never a client's: with it the coordinator can always fence the one before.
_LAST_EPOCH = 32767
NO_TIME = -1

TopicPartition = tuple[str, int]
Partitions = tuple[tuple[str, tuple[int, ...]], ...]  # as a record has them: by topic


class Initialized(NamedTuple):
    """The answer to InitProducerId, once `state` is in the log: the producer of the state.

    `previous`: the producer that asked to go on and was bumped; if it asks again, it did not get the answer. Known
    only in memory, as in Kafka: after a restart such a producer is fenced.
    """

    state: TransactionState
    previous: Producer | None


def producer_of(state: TransactionState) -> Producer:
    return Producer(state.producer_id, state.producer_epoch)


def is_exhausted(epoch: int) -> bool:
    """Whether a client's producer with this epoch cannot be bumped: it needs a new producer id."""
    return epoch >= _LAST_EPOCH - 1


# --- InitProducerId


def created(producer_id: int, timeout_ms: int, now: int) -> TransactionState:
    """Of a transactional id that was unknown, or that needs a new producer id."""
    return TransactionState(producer_id, 0, timeout_ms, EMPTY, (), now, NO_TIME)


def check_init(state: TransactionState, previous: Producer | None, expected: Producer | None) -> None:
    """Raises CONCURRENT_TRANSACTIONS while markers are written, PRODUCER_FENCED unless the client's producer may go on.

    `expected`: the producer that the client has and wants to go on with (KIP-360); None for a new client. Its epoch is
    not looked at while a transaction is open: that is aborted in any case.
    """
    if expected is not None and expected.id != state.producer_id and expected != previous:
        raise KafkaError(Errors.PRODUCER_FENCED, f"producer id {expected.id} is not {state.producer_id}")
    if state.state in PREPARED:
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the last transaction is being completed")


def needs_producer_id(state: TransactionState, expected: Producer | None) -> bool:
    """Whether `initialized` will be given a new producer id."""
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
    """The next epoch, or epoch 0 of `producer_id` where it needs one. Raises PRODUCER_FENCED.

    After `check_init`, of a state without an open transaction.
    """
    current = producer_of(state)
    if expected is not None and expected != current:
        if expected != previous:
            raise KafkaError(Errors.PRODUCER_FENCED, f"{expected} is not the producer, {current} is")
        bumped = current  # it only missed the answer
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
    """An open transaction is aborted for its producer, which loses its epoch; no client ever gets the new one.

    This is Kafka's PrepareEpochFence and the PrepareAbort after it in one step. Whoever has guessed the last epoch,
    and has begun a transaction with it, keeps it: there is none after it.
    """
    epoch = min(state.producer_epoch + 1, _LAST_EPOCH)
    return state._replace(producer_epoch=epoch, state=PREPARE_ABORT, last_update_ms=now)


# --- requests of a producer


def check_producer(state: TransactionState, producer: Producer) -> None:
    """Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
    if producer.id != state.producer_id:
        raise KafkaError(
            Errors.INVALID_PRODUCER_ID_MAPPING, f"the producer id is {state.producer_id}, not {producer.id}"
        )
    if producer.epoch != state.producer_epoch:
        raise KafkaError(Errors.PRODUCER_FENCED, f"the epoch is {state.producer_epoch}, not {producer.epoch}")


def with_partitions(
    state: TransactionState, partitions: Collection[TopicPartition], now: int
) -> TransactionState | None:
    """None if the transaction has them already. Raises CONCURRENT_TRANSACTIONS."""
    if state.state in PREPARED:
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the last transaction is being completed")
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
    """None if it ended this way already. Raises INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS."""
    if state.state == ONGOING:
        return state._replace(state=PREPARE_COMMIT if commit else PREPARE_ABORT, last_update_ms=now)
    if state.state == (COMPLETE_COMMIT if commit else COMPLETE_ABORT):
        return None
    if state.state == (PREPARE_COMMIT if commit else PREPARE_ABORT):
        raise KafkaError(Errors.CONCURRENT_TRANSACTIONS, "the transaction is being completed")
    wanted = "a commit" if commit else "an abort"
    raise KafkaError(Errors.INVALID_TXN_STATE, f"{wanted} cannot follow the state {state.state_name}")


def completed(state: TransactionState, now: int) -> TransactionState:
    """All markers of a prepared transaction are written."""
    done = COMPLETE_COMMIT if state.state == PREPARE_COMMIT else COMPLETE_ABORT
    return state._replace(state=done, partitions=(), last_update_ms=now)


# --- time


def is_timed_out(state: TransactionState, now: int) -> bool:
    return state.state == ONGOING and state.start_ms + state.timeout_ms < now


def is_expired(state: TransactionState, expiration_ms: int, now: int) -> bool:
    """Whether the id was idle for so long that it can be forgotten."""
    return state.state in IDLE and state.last_update_ms <= now - expiration_ms


# --- partitions of a transaction


def joined(partitions: Partitions, added: Iterable[TopicPartition]) -> Partitions:
    """Both, each partition once."""
    by_topic: dict[str, dict[int, None]] = {topic: dict.fromkeys(indexes) for topic, indexes in partitions}
    for topic, index in added:
        by_topic.setdefault(topic, {})[index] = None
    return tuple((topic, tuple(indexes)) for topic, indexes in by_topic.items())


def missing(partitions: Partitions, asked: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of `asked` that are not among `partitions`."""
    by_topic = {topic: frozenset(indexes) for topic, indexes in partitions}
    return [(topic, index) for topic, index in asked if index not in by_topic.get(topic, ())]


def one_by_one(partitions: Partitions) -> list[TopicPartition]:
    return [(topic, index) for topic, indexes in partitions for index in indexes]
