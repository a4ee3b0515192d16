"""A partition that this broker hosts, as leader or as follower: the log, the leader epoch, and reads.

Source: kafka.cluster.Partition.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.partition_log import PartitionLog, ReadResult
from kafkapy.log.results import Busy

# Where the reads of a Fetch request end. The first two are the isolation levels of consumers.
READ_UNCOMMITTED = 0  # at the high watermark
READ_COMMITTED = 1  # at the last stable offset
READ_TO_LOG_END = -1  # at the log end offset, for followers


def consumer_isolation(level: int) -> int:
    """Return the isolation level of a consumer's request. One that Kafka does not have is taken for the strictest."""
    return READ_UNCOMMITTED if level == READ_UNCOMMITTED else READ_COMMITTED


class HostedPartition:
    """A partition that this broker leads or follows, in one leader epoch. Any thread may read; reads take no lock.

    A change of the role or of the leader epoch makes a new object; the former one gets the error of `remove`.
    """

    __slots__ = ("gone", "index", "leader_epoch", "log", "on_change", "partition_epoch", "topic")

    def __init__(
        self,
        log: PartitionLog,
        *,
        leader_epoch: int,
        partition_epoch: int,
        on_change: Callable[[HostedPartition], object],
    ) -> None:
        """`partition_epoch` is the version of the partition's state node in the metadata tree, as far as this broker
        knows it. `on_change(partition)` is called after each change that a waiting fetch may wait for.
        """
        self.topic = log.topic
        self.index = log.partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.on_change = on_change
        self.gone: KafkaError | None = None  # set once when this role of the broker ends: see `remove`

    def check_there(self) -> None:
        """Raise the KafkaError with which `remove` was called, if this role of the broker has ended."""
        # A new exception for each call: an object that is raised many times keeps the tracebacks of all callers.
        if self.gone is not None:
            raise KafkaError(self.gone.code, self.gone.message)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise KafkaError if the leader epoch in a client's request is not the leader epoch of this partition
        (KIP-320).

        FENCED_LEADER_EPOCH for an older epoch: the client's metadata is stale. UNKNOWN_LEADER_EPOCH for a later one:
        this broker does not know of that epoch yet. -1 is not checked. Also raises the error of `remove`.
        """
        self.check_there()
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(
                Errors.FENCED_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} is over: {self.topic}-{self.index} is at {self.leader_epoch}",
            )
        raise KafkaError(
            Errors.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {current_leader_epoch} has not come to {self.topic}-{self.index}: {self.leader_epoch}",
        )

    def end_offset(self, isolation: int) -> int:
        """Return the offset at which reads end: the high watermark for consumers, with read_committed the last stable
        offset, and for followers (READ_TO_LOG_END) the log end offset.
        """
        log = self.log
        if isolation == READ_UNCOMMITTED:
            return log.high_watermark
        return log.last_stable_offset if isolation == READ_COMMITTED else log.log_end_offset

    def read(
        self, offset: int, max_bytes: int, isolation: int, *, min_one: bool, cut: bool = False, blocking: bool
    ) -> ReadResult | Busy:
        """Return the batches from `offset` on as a region of a segment file, whose last batch may be cut off.

        `max_bytes`, `min_one` and `cut` are those of PartitionLog.read. Returns BUSY if `blocking` is False and the
        look-up of the position would have to wait for the disk. Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        return self.log.read(
            offset, max_bytes, min_one=min_one, cut=cut, max_offset=self.end_offset(isolation), blocking=blocking
        )

    def remove(self, why: KafkaError) -> None:
        """End this role of the broker. Requests that wait for the partition, and later requests, get the error
        `why`.
        """
        self.gone = why
        self.log.notify_watchers()
        self.log.notify_end_watchers()
        self.on_change(self)
