"""DeleteRecords requests that wait until all live replicas have deleted the records.

Source: kafka.server.DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkapy.errors import Errors, KafkaError
from kafkapy.replica.partition import Partition
from kafkapy.runtime.purgatory import DelayedOperation


class RecordDeletion:
    """The deletion of the records of one partition below `offset`, which the leader has done already.

    `outcome` is the low watermark when all live replicas have done it as well, the error if this broker does not lead
    the partition any more, and None before.
    """

    __slots__ = ("_partition", "offset", "outcome")

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self.offset = offset
        self.outcome: int | KafkaError | None = None

    @property
    def key(self) -> tuple[str, int]:
        """The key under which the deletion waits in the purgatory: the topic and the partition index."""
        return self._partition.topic, self._partition.index

    def is_over(self) -> bool:
        """Return True if there is an outcome."""
        while self._partition.successor is not None:  # this broker leads the partition in a later leader epoch
            self._partition = self._partition.successor
        if self.outcome is None:
            if self._partition.gone is not None:
                self.outcome = self._partition.gone
            elif (low_watermark := self._partition.low_watermark) >= self.offset:
                self.outcome = low_watermark
        return self.outcome is not None

    def end(self) -> None:
        """Set the outcome to REQUEST_TIMED_OUT if there is none yet."""
        if self.outcome is None:
            self.outcome = KafkaError(Errors.REQUEST_TIMED_OUT, f"not all replicas have deleted before {self.offset}")


class DelayedDeletion(DelayedOperation):
    """Record deletions of one request, which wait for the followers until the time-out. Calls `done()` at the end."""

    __slots__ = ("_deletions", "_done")

    def __init__(self, deletions: Sequence[RecordDeletion], done: Callable[[], object]) -> None:
        super().__init__()
        self._deletions = deletions
        self._done = done

    def try_complete(self) -> bool:
        over = [deletion.is_over() for deletion in self._deletions]  # also those after one that is not over
        return all(over)

    def on_complete(self) -> None:
        for deletion in self._deletions:
            deletion.end()
        self._done()
