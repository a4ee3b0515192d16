"""Asking the transaction coordinator whether partitions are in a producer's transaction, before it may begin there.

Source: ReplicaManager.maybeStartTransactionVerificationForPartitions and AddPartitionsToTxnManager (KIP-890, as Kafka
3.9 has it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.log.verifications import NO_GUARD

if TYPE_CHECKING:
    from kafkapy.log.partition_log import PartitionLog
    from kafkapy.replica.manager import ReplicaManager

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, int]
Refused = dict[TopicPartition, KafkaError]

# (transactional id, producer id, epoch, partitions, done): the coordinator's answer, with a code for each partition.
Ask = Callable[[str, int, int, "list[TopicPartition]", Callable[[Codes], None]], None]


class TransactionVerifier:
    """`ask` reaches the coordinator; `is_enabled` is transaction.partition.verification.enable."""

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
        """Calls `done` once, at once or from any thread, with the partitions that may not be written to, and why.

        batches: topic, partition and base sequence of what is to be appended (-1: it has none). abortable: whether
        the client knows TRANSACTION_ABORTABLE; others are told INVALID_TXN_STATE. A partition where the transaction
        is open already is not asked for; what is wrong with one that is not led here its append tells.
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
                    code = Errors.INVALID_TXN_STATE  # a marker came meanwhile
                if code != Errors.NONE:
                    refused[one] = _refusal(code, transactional_id, one, abortable)
            done(refused)

        self._ask(transactional_id, producer_id, epoch, list(guards), answered)


def _refusal(code: int, transactional_id: str, one: TopicPartition, abortable: bool) -> KafkaError:
    said = name_of(code)
    if code == Errors.PRODUCER_FENCED:  # what producers expect here since Kafka 2.7
        code = Errors.INVALID_PRODUCER_EPOCH
    elif code == Errors.TRANSACTION_ABORTABLE and not abortable:
        code = Errors.INVALID_TXN_STATE
    if code in (Errors.TRANSACTION_ABORTABLE, Errors.INVALID_TXN_STATE):
        return KafkaError(code, f"{one[0]}-{one[1]} was not added to the transaction of {transactional_id!r}")
    return KafkaError(
        code, f"the coordinator of {transactional_id!r} cannot say that {one[0]}-{one[1]} is in its transaction: {said}"
    )
