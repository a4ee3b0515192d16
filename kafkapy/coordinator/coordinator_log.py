"""How a shard's records get into its partition: one batch an append, in Kafka's form, never waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy._ext.record_writer import coordinator_batch
from kafkapy.coordinator.shard import Producer, Record
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.results import COORDINATOR
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.compression import NONE

if TYPE_CHECKING:
    from kafkapy.replica.partition import Partition, Verdict
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator.log")

NO_SEQUENCE = -1

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
    """The code by which a client is told that an append of its coordinator failed (Kafka's GroupMetadataManager)."""
    return _TO_CLIENTS.get(error.code, error.code)


class CoordinatorLog:
    """The ShardLog of a partition that is led here.

    codec, acks: of the appends, asked at each; acks=all looks at min.insync.replicas. base_sequence: what the batch of
    these records has as its base sequence; nobody checks it, but Kafka writes one in some.
    """

    __slots__ = ("_acks", "_base_sequence", "_clock", "_codec", "_is_told", "_partition")

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        codec: Callable[[], int],
        base_sequence: Callable[[Sequence[Record]], int],
        acks: Callable[[], int],
    ) -> None:
        self._partition = partition
        self._acks = acks
        self._clock = clock
        self._codec = codec
        self._base_sequence = base_sequence
        self._is_told = False

    def append(
        self, records: Sequence[Record], producer: Producer | None, done: Callable[[KafkaError | None], None]
    ) -> None:
        """See ShardLog. A full queue, a stalled disk or a flush makes `done` come later, from a pool thread."""
        refusal = self._partition.refusal(self._acks())
        if refusal is not None:
            self._tell_refused(refusal)
            done(refusal)
            return
        self._is_told = False
        batch = memoryview(self._batch(records, producer))

        def finished(verdicts: list[Verdict]) -> None:
            done(verdicts[0] if isinstance(verdicts[0], KafkaError) else None)

        try:
            verdicts = self._partition.append([batch], finished, COORDINATOR)
        except RuntimeError as error:  # the append pool was stopped: the broker ends
            done(KafkaError(Errors.NOT_COORDINATOR, str(error)))
            return
        if verdicts is not None:
            finished(verdicts)

    def _tell_refused(self, refusal: KafkaError) -> None:
        """Clients ask again and again, and are only told that there is no coordinator; a person is told why, once."""
        if not self._is_told:
            self._is_told = True
            log.warning("a coordinator cannot write, so its clients find none: %s", refusal)

    def _batch(self, records: Sequence[Record], producer: Producer | None) -> bytearray:
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
        return bytearray(batch)
