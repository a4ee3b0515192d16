"""Appends a coordinator's records to its partition of an internal topic. Each append writes one batch and does not
block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy._ext.record_writer import coordinator_batch
from kafkapy.coordinator.shard import Producer, Record
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.compression import NONE

if TYPE_CHECKING:
    from kafkapy.replica.partition import Partition, Verdict
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.coordinator.log")

NO_SEQUENCE = -1
ALL = -1  # acks

_TO_CLIENTS = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_LEADER_OR_FOLLOWER: Errors.NOT_COORDINATOR,
    Errors.KAFKA_STORAGE_ERROR: Errors.NOT_COORDINATOR,
    Errors.MESSAGE_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
    Errors.RECORD_LIST_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
    Errors.INVALID_FETCH_SIZE: Errors.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: KafkaError) -> int:
    """Return the error code to send to a client when its coordinator could not append to its internal topic.

    The mapping from the error of the append is that of Kafka's GroupMetadataManager; errors without an entry keep their
    code.
    """
    return _TO_CLIENTS.get(error.code, error.code)


class CoordinatorLog:
    """Appends a coordinator's records to one partition of an internal topic whose leader is this broker. It implements
    ShardLog.

    When this broker begins another leader epoch without having followed in between, later appends go to that epoch, and
    appends that wait for replication keep waiting.

    `codec`, `acks` and `timeout_ms` are called at each append and return the compression codec, the acks and the
    time-out. acks=all checks min.insync.replicas and waits up to `timeout_ms` until the records are replicated.
    `base_sequence` returns the base sequence to write into the batch of the given records: no broker checks the base
    sequence, but Kafka sets it in some batches.
    """

    __slots__ = (
        "_acks",
        "_base_sequence",
        "_clock",
        "_codec",
        "_partition",
        "_refusal_is_logged",
        "_timeout_ms",
        "_timer",
    )

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        timer: Timer,
        codec: Callable[[], int],
        base_sequence: Callable[[Sequence[Record]], int],
        acks: Callable[[], int],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._partition = partition
        self._timeout_ms = timeout_ms
        self._acks = acks
        self._clock = clock
        self._timer = timer
        self._codec = codec
        self._base_sequence = base_sequence
        self._refusal_is_logged = False

    def append(
        self, records: Sequence[Record], producer: Producer | None, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Append the records as one batch, then call `done(None)`, or `done(error)` if the append failed.

        If the append has to wait for a queue, a slow disk, a flush or other replicas, `done` is called later, on
        another thread. `producer` is the producer whose transaction the batch belongs to, or None.
        """
        acks = self._acks()
        partition = self._latest()
        refusal = partition.refusal(acks)
        if refusal is not None:
            self._log_refusal(refusal)
            done(refusal)
            return
        self._refusal_is_logged = False
        batch = OwnBatch(self._batch(records, producer))

        def finished(verdicts: list[Verdict]) -> None:
            verdict = verdicts[0]
            if isinstance(verdict, KafkaError):
                done(verdict)
            elif acks != ALL or (partition.in_sync is None and partition.gone is None):
                done(None)  # there is no other replica, or none has to follow
            else:
                partition.when_replicated(verdict.last_offset + 1, self._timeout_ms() / 1000, replicated)

        def replicated(error: KafkaError | None) -> None:
            # `done` takes the shard's lock. With an error, `done` is called on the timer's thread, because this thread
            # may hold the lock of another shard: a log directory that fails during an append of that shard ends the
            # leadership of all its partitions. Two such threads could wait for each other.
            if error is None:
                done(None)
            else:
                self._timer.schedule(0, lambda: done(error))

        verdicts = partition.append([batch], finished)
        if verdicts is not None:
            finished(verdicts)

    def _latest(self) -> Partition:
        """Return the partition in the latest leader epoch that followed without a change of the leader."""
        while self._partition.successor is not None:
            self._partition = self._partition.successor
        return self._partition

    def _log_refusal(self, refusal: KafkaError) -> None:
        """Log why the partition refuses an append, once for a run of consecutive refusals: clients retry without end,
        and the error code that they get does not tell the reason."""
        if not self._refusal_is_logged:
            self._refusal_is_logged = True
            log.warning("a coordinator cannot append, its clients get an error: %s", refusal)

    def _batch(self, records: Sequence[Record], producer: Producer | None) -> bytes | bytearray:
        codec, now_ms, sequence = self._codec(), self._clock.time_ms(), self._base_sequence(records)
        producer_id, producer_epoch = producer or (-1, -1)
        if codec == NONE:
            return coordinator_batch(list(records), now_ms, producer_id, producer_epoch, sequence)
        builder = BatchBuilder(codec)
        for key, value in records:
            builder.append(now_ms, key, value)
        batch = builder.build(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=producer is not None,
        )
        return batch
