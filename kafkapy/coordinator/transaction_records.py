"""Schemas and codecs of the records in `__transaction_state`, which hold the producer id, epoch and transaction state
of each transactional id.

A record with a null value is a tombstone. Source: Kafka's TransactionLog, and its schemas TransactionLogKey and
TransactionLogValue.
"""

from typing import NamedTuple

from kafkapy.errors import ProtocolError
from kafkapy.protocol.versioned import Buffer, VersionedMessage, version_of

TRANSACTION_LOG_KEY = VersionedMessage(
    """
record TransactionLogKey  versions 0-0  flexible none
  transactional_id                      string
"""
)
TRANSACTION_LOG_VALUE = VersionedMessage(
    """
record TransactionLogValue  versions 0-1  flexible 1+
  producer_id                           int64
  producer_epoch                        int16
  transaction_timeout_ms                int32
  transaction_status                    int8
  transaction_partitions                []       nullable
    topic                               string
    partition_ids                       []int32
  transaction_last_update_timestamp_ms  int64
  transaction_start_timestamp_ms        int64
"""
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
EMPTY = STATES.index("Empty")

# Kafka writes version 1 (flexible) only if the feature `transaction.version` is enabled, which needs KRaft.
_VERSION = 0


class TransactionState(NamedTuple):
    """The state of a transactional id, as recorded in `__transaction_state`. Times are in milliseconds; `state` is an
    index into STATES.

    `partitions` has (topic, partition ids) for each topic of the current transaction, and is empty in state Empty.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    last_update_ms: int
    start_ms: int

    @property
    def state_name(self) -> str:
        return STATES[self.state]


def decode_key(key: Buffer) -> str | None:
    """Return the transactional id in the key of a record of `__transaction_state`, or None for a key version of a later
    Kafka. Raises ProtocolError for malformed bytes."""
    if not TRANSACTION_LOG_KEY.has_version(version_of(key, "a key of __transaction_state")):
        return None
    transactional_id: str = TRANSACTION_LOG_KEY.decode(key)[1].transactional_id
    return transactional_id


def encode_key(transactional_id: str) -> bytes:
    return TRANSACTION_LOG_KEY.encode(TRANSACTION_LOG_KEY.Message(transactional_id=transactional_id), 0)


def decode_state(value: Buffer) -> TransactionState:
    """Return the transaction state decoded from the value of a record of `__transaction_state`. Raises ProtocolError
    for malformed bytes or an invalid state number, UnsupportedVersion for an unknown version."""
    _, found = TRANSACTION_LOG_VALUE.decode(value)
    if not 0 <= found.transaction_status < len(STATES):
        raise ProtocolError(f"{found.transaction_status} is not a transaction state from 0 to {len(STATES) - 1}")
    if found.transaction_partitions is None and found.transaction_status != EMPTY:
        raise ProtocolError(f"the partitions of a transaction in state {STATES[found.transaction_status]} are null")
    partitions = () if found.transaction_status == EMPTY else found.transaction_partitions
    return TransactionState(
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_status,
        tuple((entry.topic, tuple(entry.partition_ids)) for entry in partitions),
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
    )


def encode_state(state: TransactionState) -> bytes:
    """Return a transaction state encoded as the value of a record of `__transaction_state`. As in Kafka, the partitions
    are null in state Empty.

    Raises ValueError for a state Empty that has partitions.
    """
    if state.state == EMPTY and state.partitions:
        raise ValueError(f"a transaction in state Empty cannot have partitions: {state.partitions}")
    message = TRANSACTION_LOG_VALUE.Message
    partitions = [
        message.TransactionPartitions(topic=topic, partition_ids=list(ids)) for topic, ids in state.partitions
    ]
    return TRANSACTION_LOG_VALUE.encode(
        message(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            transaction_timeout_ms=state.timeout_ms,
            transaction_status=state.state,
            transaction_partitions=None if state.state == EMPTY else partitions,
            transaction_last_update_timestamp_ms=state.last_update_ms,
            transaction_start_timestamp_ms=state.start_ms,
        ),
        _VERSION,
    )
