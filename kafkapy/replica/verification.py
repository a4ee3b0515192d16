"""Transaction verification (KIP-890, as in Kafka 3.9).

Before a transaction's first append to a partition, the transaction coordinator is asked whether the partition was added
to the transaction. Source: ReplicaManager.maybeStartTransactionVerificationForPartitions, AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.log.producers.verifications import NO_GUARD

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog
    from kafkapy.replica.manager import ReplicaManager

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, int]
Refused = dict[TopicPartition, KafkaError]

# Called with (transactional id, producer id, epoch, partitions, done). Calls `done` with the coordinator's error code
# for each partition.
Ask = Callable[[str, int, int, "list[TopicPartition]", Callable[[Codes], None]], None]


class TransactionVerifier:
    """Asks transaction coordinators whether the partitions of transactional appends were added to the transaction.

    `ask` sends the question to the coordinator. `is_enabled` returns transaction.partition.verification.enable.
    """

    def __init__(self, replicas: ReplicaManager, ask: Ask, is_enabled: Callable[[], bool]) -> None:
        self._replicas = replicas
        self._ask = ask
        self._is_enabled = is_enabled

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        batches: Iterable[tuple[str, int, int]],
        done: Callable[[Refused], object],
        *,
        abortable: bool,
    ) -> None:
        """Verify the partitions of a transactional append, and call `done` once with the errors of those that must be
        refused.

        `done` gets the errors by (topic, partition), before this call returns or later on any thread. `batches` has
        topic, partition and base sequence of each batch (-1: no sequence). `abortable` is True if the client knows
        TRANSACTION_ABORTABLE; other clients get INVALID_TXN_STATE. A partition in which the transaction is open already
        needs no verification. A partition that this broker does not lead is skipped, because its append fails anyway.
        """
        if not self._is_enabled():
            done({})
            return
        guards: dict[TopicPartition, tuple[PartitionLog, int]] = {}
        for topic, index, sequence in batches:
            try:
                log = self._replicas.get(topic, index).log
            except KafkaError:
                continue
            guard = log.begin_verification(producer_id, sequence, epoch)
            if guard != NO_GUARD:
                guards[topic, index] = log, guard
        if not guards:
            done({})
            return

        def answered(codes: Codes) -> None:
            refused: Refused = {}
            for one, (log, guard) in guards.items():
                code = codes.get(one, Errors.NONE)
                if code == Errors.NONE and not log.producers.verifications.succeeded(producer_id, guard):
                    code = Errors.INVALID_TXN_STATE  # a transaction marker was written meanwhile
                if code != Errors.NONE:
                    refused[one] = _refusal(code, transactional_id, one, abortable)
            done(refused)

        self._ask(transactional_id, producer_id, epoch, list(guards), answered)


def _refusal(code: int, transactional_id: str, one: TopicPartition, abortable: bool) -> KafkaError:
    error_name = name_of(code)
    if code == Errors.PRODUCER_FENCED:  # the code that producers expect in this response since Kafka 2.7
        code = Errors.INVALID_PRODUCER_EPOCH
    elif code == Errors.TRANSACTION_ABORTABLE and not abortable:
        code = Errors.INVALID_TXN_STATE
    if code in (Errors.TRANSACTION_ABORTABLE, Errors.INVALID_TXN_STATE):
        return KafkaError(code, f"{one[0]}-{one[1]} was not added to the transaction of {transactional_id!r}")
    return KafkaError(
        code,
        f"the coordinator of {transactional_id!r} cannot say that {one[0]}-{one[1]} is in its transaction: "
        f"{error_name}",
    )
