"""Writing the markers that end a transaction into the partitions it wrote to.

Behind the WriteTxnMarkers request, and the transaction coordinator's own when the partitions are on this broker.
Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.results import COORDINATOR
from kafkapy.record.control import marker_batch

if TYPE_CHECKING:
    from kafkapy.replica.manager import ReplicaManager
    from kafkapy.replica.partition import Partition, Verdict
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.replica.markers")

TopicPartition = tuple[str, int]
Codes = dict[TopicPartition, int]

OFFSETS_TOPIC = "__consumer_offsets"
_ACKS_ALL = -1

# (partition of the offsets topic, producer id, whether it committed, then): the offsets of the transaction count now,
# or are forgotten. `then` is called once, at once or from any thread.
OffsetsEnded = Callable[[int, int, bool, Callable[[], None]], None]


class MarkerWriter:
    """Appends markers to partitions that this broker leads. Never waits for a disk."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, offsets_ended: OffsetsEnded) -> None:
        self._replicas = replicas
        self._clock = clock
        self._offsets_ended = offsets_ended

    def write(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: Sequence[TopicPartition],
        done: Callable[[Codes], object],
    ) -> None:
        """Calls `done` once with an error code for each partition, at once or from any thread.

        NONE says that the marker is in the log and, for a partition of the offsets topic, that the offsets of the
        transaction have been taken over. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: a later epoch of
        the producer, or of its coordinator, has written there.
        """
        if producer_id < 0 or epoch < 0:  # no producer has them; Kafka fails to build such a marker
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

            def told(verdict: Verdict, one: TopicPartition = one) -> None:
                if isinstance(verdict, KafkaError):
                    writing.tell(one, verdict.code)
                elif one[0] != OFFSETS_TOPIC:
                    writing.tell(one, Errors.NONE)
                else:
                    self._offsets_ended(one[1], producer_id, commit, lambda: writing.tell(one, Errors.NONE))

            self._append(one, bytearray(batch), told)  # offset and leader epoch are written into it

    def _append(self, one: TopicPartition, batch: bytearray, told: Callable[[Verdict], None]) -> None:
        try:
            partition = self._marked(one)
            verdicts = partition.append([memoryview(batch)], lambda late: told(late[0]), COORDINATOR)
        except KafkaError as error:
            told(error)
            return
        except RuntimeError as error:  # the append pool was stopped: the broker ends
            told(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, str(error)))
            return
        except Exception as error:  # the other partitions, and who waits for all of them, must not suffer
            log.exception("writing a marker to %s-%d failed", *one)
            told(KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)))
            return
        if verdicts is not None:
            told(verdicts[0])

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
    """Counts the partitions that have not answered yet."""

    __slots__ = ("_codes", "_done", "_left", "_lock")

    def __init__(self, partitions: Sequence[TopicPartition], done: Callable[[Codes], object]) -> None:
        self._codes: Codes = {}
        self._done = done
        self._left = len(partitions)
        self._lock = threading.Lock()
        if not partitions:
            done(self._codes)

    def tell(self, one: TopicPartition, code: int) -> None:
        with self._lock:
            self._codes[one] = code
            self._left -= 1
            last = self._left == 0
        if last:
            self._done(self._codes)
