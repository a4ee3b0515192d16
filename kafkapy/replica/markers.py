"""Writes the markers that end a transaction to the partitions of the transaction.

Used for WriteTxnMarkers requests, and by a transaction coordinator on this broker. Source:
KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.record.control import Marker, marker_batch

if TYPE_CHECKING:
    from kafkapy.replica.manager import ReplicaManager
    from kafkapy.replica.partition import Partition, Verdict
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.replica.markers")

TopicPartition = tuple[str, int]
Codes = dict[TopicPartition, int]

OFFSETS_TOPIC = "__consumer_offsets"
_ACKS_ALL = -1

# The error codes that a transaction coordinator of Apache Kafka expects. After any other code it never sends the marker
# again (TransactionMarkerRequestCompletionHandler throws), and the transaction stays open for ever.
_EXPECTED = frozenset(
    {
        Errors.NONE,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.NOT_ENOUGH_REPLICAS,
        Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Errors.REQUEST_TIMED_OUT,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.INVALID_PRODUCER_EPOCH,
        Errors.TRANSACTION_COORDINATOR_FENCED,
        Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)

# Called with (partition of the offsets topic, producer id, whether the transaction was committed, then). The offsets of
# the transaction become valid, or are dropped. Then `then` is called once: before the call returns, or on any thread.
OffsetsEnded = Callable[[int, int, bool, Callable[[], None]], None]


class MarkerWriter:
    """Appends transaction markers to partitions that this broker leads. Never waits for a disk."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        offsets_ended: OffsetsEnded,
        timeout_s: Callable[[], float] = lambda: 30.0,
    ) -> None:
        """`timeout_s()` returns how many seconds the replication of a marker may take."""
        self._replicas = replicas
        self._clock = clock
        self._offsets_ended = offsets_ended
        self._timeout_s = timeout_s

    def write(self, marker: Marker, partitions: Sequence[TopicPartition], done: Callable[[Codes], object]) -> None:
        """Append a marker to each partition, then call `done` once with the error codes by (topic, partition).

        `done` is called before this call returns, or later on any thread. The code NONE means that the marker is
        replicated and, for a partition of the offsets topic, that the group coordinator has applied the offsets of the
        transaction. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED mean that a later epoch of the producer,
        or of the transaction coordinator, has written to the partition. After NOT_LEADER_OR_FOLLOWER, which also stands
        for errors that no coordinator expects, such as invalid settings of the topic, the coordinator sends the marker
        again.
        """
        producer_id, epoch, coordinator_epoch, commit = marker
        if producer_id < 0 or epoch < 0:  # not valid; Kafka fails to build such a marker
            done(dict.fromkeys(partitions, Errors.UNKNOWN_SERVER_ERROR))
            return
        batch = marker_batch(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.time_ms(),
        )
        writing = _Writing(partitions, done)
        for one in partitions:

            def finished(error: KafkaError | None, one: TopicPartition = one) -> None:
                if error is not None:
                    writing.finished(one, error.code if error.code in _EXPECTED else Errors.NOT_LEADER_OR_FOLLOWER)
                elif one[0] != OFFSETS_TOPIC:
                    writing.finished(one, Errors.NONE)
                else:
                    self._offsets_ended(one[1], producer_id, commit, lambda: writing.finished(one, Errors.NONE))

            self._append(one, OwnBatch(batch), finished)  # a copy: the log writes offset and leader epoch into it

    def _append(self, one: TopicPartition, batch: OwnBatch, finished: Callable[[KafkaError | None], object]) -> None:
        try:
            partition = self._marked(one)

            def appended(verdicts: list[Verdict]) -> None:
                verdict = verdicts[0]
                if isinstance(verdict, KafkaError):
                    finished(verdict)
                else:
                    partition.when_replicated(verdict.last_offset + 1, self._timeout_s(), finished)

            verdicts = partition.append([batch], appended)
        except KafkaError as error:
            finished(error)
            return
        except Exception as error:  # the other partitions must get their markers, and `done` must be called
            log.exception("writing a marker to %s-%d failed", *one)
            finished(KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)))
            return
        if verdicts is not None:
            appended(verdicts)

    def _marked(self, one: TopicPartition) -> Partition:
        partition = self._replicas.get(*one)
        if partition.log.config.record_magic < 2:
            raise KafkaError(
                Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{one[0]} has a message format without transactions"
            )
        refusal = partition.refusal(_ACKS_ALL)
        if refusal is not None:
            raise refusal
        return partition


class _Writing:
    """Collects the error codes of the partitions of one `write` call, and calls `done` when it has all of them."""

    __slots__ = ("_codes", "_done", "_left", "_lock")

    def __init__(self, partitions: Sequence[TopicPartition], done: Callable[[Codes], object]) -> None:
        self._codes: Codes = {}
        self._done = done
        self._left = len(partitions)
        self._lock = threading.Lock()
        if not partitions:
            done(self._codes)

    def finished(self, one: TopicPartition, code: int) -> None:
        with self._lock:
            self._codes[one] = code
            self._left -= 1
            last = self._left == 0
        if last:
            self._done(self._codes)
