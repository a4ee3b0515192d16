"""DeleteRecords requests that wait until all live replicas have deleted the records.

Source: kafka.server.DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkapy.errors import Errors
from kafkapy.replica.partition import Partition
from kafkapy.runtime.purgatory import DelayedOperation


class RecordDeletion:
    """The deletion of the records of one partition below `offset`, which the leader has done already.

    `code` is None until all live replicas have done it as well, then NONE. It is the code of an error if this broker
    does not lead the partition any more, and REQUEST_TIMED_OUT after the time-out. `low_watermark` is that of the
    partition at the last call of `is_over`, -1 if this broker does not lead the partition any more.
    """

    __slots__ = ("_partition", "code", "low_watermark", "offset")

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self.offset = offset
        self.code: int | None = None
        self.low_watermark = -1

    @property
    def key(self) -> tuple[str, int]:
        """The key under which the deletion waits in the purgatory: the topic and the partition index."""
        return self._partition.topic, self._partition.index

    def is_over(self) -> bool:
        """Look at the partition, and return True if there is a `code`."""
        while self._partition.successor is not None:  # this broker leads the partition in a later leader epoch
            self._partition = self._partition.successor
        if self.code is None:
            gone = self._partition.gone
            self.low_watermark = self._partition.low_watermark if gone is None else -1
            if gone is not None:
                self.code = gone.code
            elif self.low_watermark >= self.offset:
                self.code = Errors.NONE
        return self.code is not None

    def end(self) -> None:
        """Set `code` to REQUEST_TIMED_OUT if it is None."""
        if self.code is None:
            self.code = Errors.REQUEST_TIMED_OUT


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
