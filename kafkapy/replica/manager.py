"""The partitions that this broker leads or follows: look them up, make this broker leader or follower, and delete them.

Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import PartitionLog
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import PartitionRole
from kafkapy.replica.followed_partition import FollowedPartition
from kafkapy.replica.hosted_partition import HostedPartition
from kafkapy.replica.in_sync_replicas import InSyncReplicas, IsrEnvironment
from kafkapy.replica.partition import Partition
from kafkapy.replica.shared_read import SharedRead
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.purgatory import Purgatory
from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.replica.manager")

# For a partition that this broker does not lead: the leader epoch of its last role, NO_EPOCH if there was none yet, and
# the error that `get` raises.
Absence = tuple[int, KafkaError]

NO_EPOCH = -1
_UNKNOWN: Absence = (NO_EPOCH, KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION))


def check_later(role: PartitionRole, epoch: int) -> None:
    """Raise KafkaError STALE_CONTROLLER_EPOCH unless the role's leader epoch is later than `epoch`, the present one."""
    if epoch != NO_EPOCH and role.leader_epoch <= epoch:
        raise KafkaError(
            Errors.STALE_CONTROLLER_EPOCH,
            f"leader epoch {role.leader_epoch} of {role.topic}-{role.partition} is not later than {epoch}",
        )


def _known(topic_id: bytes) -> bytes | None:
    """Return the topic id, None if it is zero: controllers before Kafka 2.8 send none."""
    return None if topic_id == ZERO_ID else topic_id


def _nothing(partition: HostedPartition) -> None:
    """Do nothing: the default of the callbacks."""


class ReplicaManager:
    """The partitions that this broker leads or follows, by topic and partition index.

    Looking up a partition takes no lock; changes do.
    """

    def __init__(
        self,
        log_manager: LogManager,
        *,
        broker_id: int,
        timer: Timer,
        append_pool: DiskPool,
        conversion_pool: DiskPool | None = None,
        stall_threshold: float,
        is_known: Callable[[str, int], bool] = lambda topic, index: False,
        is_deleted: Callable[[str, bytes], bool] = lambda topic, topic_id: False,
        isr_env: IsrEnvironment | None = None,
    ) -> None:
        """`is_known(topic, index)` returns True if the cluster has the partition, maybe on other brokers.
        `is_deleted(topic, topic_id)` returns True if this broker is the controller and has deleted the topic.
        `isr_env` is what partitions with several replicas need.
        """
        self.log_manager = log_manager
        self.broker_id = broker_id
        self.fetch_purgatory = Purgatory("fetch", timer)
        self.shared_read = SharedRead()
        self._timer = timer
        self._append_pool = append_pool
        self._conversion_pool = conversion_pool
        self._stall_threshold = stall_threshold
        self._is_known = is_known
        self._is_deleted = is_deleted
        self.isr_env = IsrEnvironment() if isr_env is None else isr_env
        self.deletion_purgatory = self.isr_env.deletions
        self._stalls: dict[str, StallMonitor] = {}
        self._lock = threading.Lock()
        self._topics: dict[str, dict[int, Partition]] = {}
        self._followed: dict[str, dict[int, FollowedPartition]] = {}
        # Partitions of this broker that it does not lead, by topic and index; None while the log is loading.
        self._absent: dict[str, dict[int, Absence | None]] = {}
        self._verifies_transactions = False
        # Called with each partition that this broker begins to lead, or ceases to lead. On any thread.
        self.on_became_leader: Callable[[Partition], object] = _nothing
        self.on_lost_leadership: Callable[[Partition], object] = _nothing
        # Called with each partition that this broker begins to follow, or ceases to follow, on any thread. When
        # `on_followed` is called, no append of an earlier role can come any more.
        self.on_followed: Callable[[FollowedPartition], object] = _nothing
        self.on_unfollowed: Callable[[FollowedPartition], object] = _nothing

    def get(self, topic: str, index: int, *, hasten: bool = True) -> Partition:
        """Return the Partition. Raise KafkaError if this broker does not lead it.

        The error is UNKNOWN_TOPIC_OR_PARTITION for an unknown partition, NOT_LEADER_OR_FOLLOWER while the log is
        loading and for a partition that another broker leads, KAFKA_STORAGE_ERROR if the log directory is offline, or
        the error that `refuse` was given. With `hasten`, a log that is still loading is loaded next; callers that go
        through all partitions pass False.
        """
        partition = self._find(topic, index)
        if partition is None:
            absence = self._absent.get(topic, {}).get(index, _UNKNOWN)
            if absence is None:
                if hasten:
                    self.log_manager.loading.hasten((topic, index))
                raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"the log of {topic}-{index} is being recovered")
            if absence is not _UNKNOWN:
                _, reason = absence
                raise KafkaError(reason.code, reason.message)
            # `make_leader` on another thread may have added the partition to `_topics` after the first look-up, and
            # removed it from `_absent` before the second. So look again.
            partition = self._find(topic, index)
            if partition is None:
                code = Errors.UNKNOWN_TOPIC_OR_PARTITION
                if self._is_known(topic, index):
                    code = Errors.NOT_LEADER_OR_FOLLOWER
                raise KafkaError(code, f"this broker has no partition {topic}-{index}")
        if partition.gone is not None:
            partition.check_there()
        return partition

    def require_leader(self, topic: str, index: int, current_leader_epoch: int) -> Partition:
        """Return the Partition, for a request that only the leader handles. As in Kafka, the leader epoch of the
        request is checked before the leadership.

        Raises the KafkaError of `get`, and FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH: see
        HostedPartition.check_epoch.
        """
        try:
            partition = self.get(topic, index)
        except KafkaError:
            followed = self.followed(topic, index)
            if followed is not None and followed.gone is None:
                followed.check_epoch(current_leader_epoch)
            raise
        partition.check_epoch(current_leader_epoch)
        return partition

    def readable(self, topic: str, index: int) -> HostedPartition:
        """Return the partition, for reads, if this broker leads or follows it. Raises the KafkaError of `get`."""
        followed = self.followed(topic, index)
        if followed is not None and followed.gone is None:
            return followed
        try:
            return self.get(topic, index)
        except KafkaError:
            # `make_follower` on another thread may have made this broker a follower after the first look-up.
            followed = self.followed(topic, index)
            if followed is None or followed.gone is not None:
                raise
            return followed

    def followed(self, topic: str, index: int) -> FollowedPartition | None:
        """Return the partition if this broker follows it, also if its log directory has failed, else None."""
        return self._followed.get(topic, {}).get(index)

    def partition_epoch(self, topic: str, index: int) -> int:
        """Return the version of the partition's state node that this broker knows, -1 if it has no role for it."""
        partition = self._hosted(topic, index)
        return -1 if partition is None else partition.partition_epoch

    def all_followed(self) -> Iterator[FollowedPartition]:
        """Return an iterator of the partitions that this broker follows."""
        for partitions in list(self._followed.values()):
            yield from list(partitions.values())

    def _find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def _hosted(self, topic: str, index: int) -> Partition | FollowedPartition | None:
        return self._find(topic, index) or self.followed(topic, index)

    def expect(self, topic: str, indexes: Iterable[int]) -> None:
        """Record partitions of a topic that this broker will lead as soon as their logs are loaded.

        Called once for each topic at the start of the broker.
        """
        self._absent[topic] = dict.fromkeys(indexes)

    def await_roles(self, topic: str, indexes: Iterable[int]) -> None:
        """Record partitions of a topic that the controller may have this broker lead or follow, though it has no role
        for them yet.

        Requests for them fail with NOT_LEADER_OR_FOLLOWER from now on, unless the broker has a role for them already.
        """
        with self._lock:
            absent = self._absent.setdefault(topic, {})
            for index in indexes:
                if absent.get(index) is None and self._find(topic, index) is None:
                    absent[index] = (
                        NO_EPOCH,
                        KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"this broker has no role yet for {topic}-{index}"),
                    )

    def refuse(self, topic: str, index: int, reason: KafkaError) -> None:
        """Record the error `reason` because of which this broker cannot lead the partition; `get` raises it from now
        on.

        Does nothing if the topic was deleted.
        """
        with self._lock:
            absent = self._absent.get(topic, {})
            if index in absent:
                before = absent[index]
                absent[index] = (NO_EPOCH if before is None else before[0]), reason

    def is_expected(self, topic: str, index: int) -> bool:
        """Return True if the partition's log is still loading."""
        return self._absent.get(topic, {}).get(index, _UNKNOWN) is None

    def holds(self, topic: str, index: int) -> bool:
        """Return True if this broker leads the partition and its log directory is online."""
        partition = self._find(topic, index)
        return partition is not None and partition.gone is None

    def leader_epoch(self, topic: str, index: int) -> int:
        """Return the leader epoch in which this broker leads or follows the partition, NO_EPOCH if it does neither."""
        partition = self._find(topic, index)
        if partition is not None and partition.gone is None:
            return partition.leader_epoch
        absence = self._absent.get(topic, {}).get(index)
        return NO_EPOCH if absence is None else absence[0]

    def next_epoch(self, topic: str, index: int) -> int:
        """Return the leader epoch to write to the metadata tree for a partition that has no state node.

        If this broker leads the partition, this is the current leader epoch: only the node is gone. Otherwise it is the
        epoch after the latest in the log, so that no leader epoch is used twice.
        """
        if self.holds(topic, index):
            return self.leader_epoch(topic, index)
        return self.log_manager.last_leader_epoch(topic, index) + 1

    def check_later(self, role: PartitionRole) -> None:
        """Raise KafkaError STALE_CONTROLLER_EPOCH unless the role's leader epoch is later than the partition's present
        one.
        """
        check_later(role, self.leader_epoch(role.topic, role.partition))

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    def make_leader(self, role: PartitionRole, config: LogConfig) -> Partition:
        """Make this broker the partition's leader, creating the log if there is none, and return the new Partition.

        Waits for the disk. Raises KafkaError if the log cannot be created, or is in a log directory that is offline.
        Raises UNKNOWN_TOPIC_OR_PARTITION if this broker, as controller, has deleted the topic in the meantime, and
        STALE_CONTROLLER_EPOCH if another thread has applied a later role in the meantime.
        """
        topic, index = role.topic, role.partition
        partition_log = self.log_manager.create(topic, index, _known(role.topic_id), config, is_new=role.is_new)
        epoch_start = partition_log.assign_leader_epoch(role.leader_epoch)
        in_sync = self._in_sync_replicas(role, partition_log, epoch_start)
        partition = Partition(
            partition_log,
            broker_id=self.broker_id,
            leader_epoch=role.leader_epoch,
            partition_epoch=role.partition_epoch,
            in_sync=in_sync,
            isr_env=self.isr_env,
            append_pool=self._append_pool,
            conversion_pool=self._conversion_pool,
            stall=self._stall_of(partition_log.env.log_dir),
            timer=self._timer,
            on_change=self.fetch_purgatory.check,
        )
        if in_sync is None:  # else other replicas may lack what is above the high watermark
            partition_log.advance_high_watermark(epoch_start, role.leader_epoch)
        with self._lock:
            partition_log.verifies_transactions = self._verifies_transactions
            absent = self._absent.get(topic, {})
            before = self._find(topic, index)
            is_deleted = not role.is_new and self._is_deleted(topic, role.topic_id)
            if not is_deleted:
                # Since the log began this leader epoch, another thread may have given the partition a later role, or
                # have deleted its log.
                self.check_later(role)
                partition_log.check_open()
                if before is not None:
                    before.hand_over(partition)
                # Changed in place: to copy the dict of all topics for each partition would be slow. Readers take no
                # lock: a look-up of a topic or an index is atomic, and so is the list() of those that iterate.
                self._topics.setdefault(topic, {})[index] = partition
                absent.pop(index, None)
                followed = self._pop(self._followed, topic, index)
        if is_deleted:
            if partition_log.topic_id == role.topic_id:  # the deletion ended before this log was created
                self.log_manager.delete(topic, index)
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted")
        if before is not None:  # the log refuses its appends from now on
            before.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has a later leader epoch"))
        if followed is not None:
            self._end_following(followed, KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "this broker leads it now"))
        if in_sync is not None:
            partition.advance()
        partition_log.notify_watchers()
        self.on_became_leader(partition)
        return partition

    def _in_sync_replicas(
        self, role: PartitionRole, partition_log: PartitionLog, epoch_start: int
    ) -> InSyncReplicas | None:
        """Return the ISR and the followers of a partition to lead, None if this broker is its only replica."""
        if set(role.replicas) | set(role.isr) == {self.broker_id}:
            return None
        return InSyncReplicas(
            partition_log,
            self.isr_env,
            broker_id=self.broker_id,
            leader_epoch=role.leader_epoch,
            partition_epoch=role.partition_epoch,
            replicas=role.replicas,
            isr=role.isr,
            epoch_start=epoch_start,
        )

    def shrink_isrs(self) -> None:
        """Remove followers that are not caught up from the ISRs of the partitions that this broker leads. Run every
        replica.lag.time.max.ms / 2.
        """
        for partition in self:
            partition.shrink_isr()

    def brokers_gone(self, broker_ids: Collection[int]) -> None:
        """Advance high watermarks that have waited for followers on these brokers, which are not alive any more."""
        for partition in self:
            partition.brokers_gone(broker_ids)

    def make_follower(self, role: PartitionRole, config: LogConfig, reason: KafkaError) -> FollowedPartition:
        """Make this broker a follower of the partition, creating the log if there is none, and return the new
        FollowedPartition. From now on `get` raises `reason`.

        Waits for the disk. Raises KafkaError if the log cannot be created, or is in a log directory that is offline,
        and STALE_CONTROLLER_EPOCH if another thread has applied a later role in the meantime.
        """
        topic, index = role.topic, role.partition
        partition_log = self.log_manager.create(topic, index, _known(role.topic_id), config, is_new=role.is_new)
        partition_log.fence(role.leader_epoch)  # first: a later append would not be replicated
        followed = FollowedPartition(
            partition_log,
            leader=role.leader,
            leader_epoch=role.leader_epoch,
            partition_epoch=role.partition_epoch,
            topic_id=role.topic_id,
            stall=self._stall_of(partition_log.env.log_dir),
            on_change=self.fetch_purgatory.check,
        )
        with self._lock:
            self.check_later(role)
            partition_log.check_open()
            before = self.followed(topic, index)
            # Readers take no lock: they find the former role until the last of these lines, and then the new one.
            self._absent.setdefault(topic, {})[index] = role.leader_epoch, reason
            self._followed.setdefault(topic, {})[index] = followed
            partition = self._topics.get(topic, {}).pop(index, None)
        if partition is not None:
            partition.remove(reason)
            self.on_lost_leadership(partition)
        if before is not None:
            self._end_following(before, KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "a later leader epoch has begun"))
        self.on_followed(followed)
        return followed

    def stop_fetching(self, topic: str, index: int) -> None:
        """Stop fetching a partition that this broker follows, until its next role. Ignore other partitions."""
        followed = self.followed(topic, index)
        if followed is not None and followed.gone is None:
            self.on_unfollowed(followed)

    def _end_following(self, followed: FollowedPartition, why: KafkaError) -> None:
        followed.remove(why)
        self.on_unfollowed(followed)

    def delete(self, topic: str, index: int) -> None:
        """Remove a partition from this broker, and delete its log. Waits for the disk.

        A log that is being recovered is deleted a little later. Raises KafkaError if the log cannot be deleted because
        its log directory is offline, or because the broker stops.
        """
        self._end_role(topic, index)
        try:
            self.log_manager.delete(topic, index)
        finally:
            # `make_leader` or `make_follower` on another thread may have given the partition a role between these
            # calls, with the log that is deleted now. A role with a new log stays.
            self._end_role(topic, index, of_closed_log=True)

    def _end_role(self, topic: str, index: int, *, of_closed_log: bool = False) -> None:
        """End the role of a partition that is deleted. With `of_closed_log`, do so only if the role's log is closed."""
        with self._lock:
            role = self._hosted(topic, index)
            if of_closed_log and (role is None or not role.log.closed):
                return
            partition = self._pop(self._topics, topic, index)
            followed = self._pop(self._followed, topic, index)
            self._pop(self._absent, topic, index)
        deleted = KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} was deleted from this broker")
        if partition is not None:
            partition.remove(deleted)
            self.on_lost_leadership(partition)
        if followed is not None:
            self._end_following(followed, deleted)

    @staticmethod
    def _pop(by_topic: dict[str, dict[int, Any]], topic: str, index: int) -> Any:
        partitions = by_topic.get(topic, {})
        found = partitions.pop(index, None)
        if not partitions:
            by_topic.pop(topic, None)
        return found

    def config_of(self, topic: str, index: int) -> LogConfig | None:
        """Return the settings of the log of a partition that this broker hosts, None for any other partition."""
        partition = self._hosted(topic, index)
        return partition.log.config if partition is not None else None

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply new settings of a topic to the logs of all its partitions that this broker hosts."""
        for hosted in (self._topics, self._followed):
            for partition in list(hosted.get(topic, {}).values()):
                partition.log.update_config(config)

    def verify_transactions(self, enabled: bool) -> None:
        """Set whether the first append of a transaction to a partition must be verified with the transaction
        coordinator.

        See kafkapy.replica.verification.
        """
        with self._lock:
            self._verifies_transactions = enabled
            for partition in self:
                partition.log.verifies_transactions = enabled

    def directory_failed(self, directory: Path, error: BaseException) -> None:
        """End this broker's roles for all partitions in a log directory that went offline because of `error`.

        Requests to these partitions fail with KAFKA_STORAGE_ERROR from now on.
        """
        gone = KafkaError(Errors.KAFKA_STORAGE_ERROR, f"log directory {directory} is offline: {error}")
        lost = [one for one in self if one.log.dir.parent == directory and one.gone is None]
        followed = [one for one in self.all_followed() if one.log.dir.parent == directory and one.gone is None]
        for partition in lost:
            partition.remove(gone)
            self.on_lost_leadership(partition)
        for one in followed:
            with self._lock:
                self._absent.setdefault(one.topic, {})[one.index] = one.leader_epoch, gone
            self._end_following(one, gone)
        log.error("log directory %s is offline (%s); partitions lost: %d", directory, error, len(lost) + len(followed))

    def moved(self, topic: str, index: int) -> None:
        """Have the appends to a partition watched with those of its log directory, which is another one now."""
        partition, followed = self._find(topic, index), self.followed(topic, index)
        if partition is not None:
            partition.watch_stalls(self._stall_of(partition.log.env.log_dir))
        if followed is not None:
            followed.stall = self._stall_of(followed.log.env.log_dir)

    def end_long_work(self) -> None:
        """Refuse the queued appends that need a format conversion, because the broker is stopping and sends no more
        responses.
        """
        refusal = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
        for partition in self:
            partition.ending = refusal

    def answer_waiting(self, sessions: Iterable[Hashable]) -> None:
        """Complete every delayed fetch with the records that there are, because the broker is stopping.

        `sessions` are the fetch sessions, which are keys of the fetch purgatory like the partitions.
        """
        for key in (*self, *sessions):
            self.fetch_purgatory.complete_all(key)

    def _stall_of(self, directory: str) -> StallMonitor:
        monitor = self._stalls.get(directory)
        if monitor is None:
            monitor = self._stalls[directory] = StallMonitor(self._stall_threshold)
        return monitor

    def stalls(self) -> dict[Path, Any]:
        """Return the StallMonitor of each log directory, which counts slow writes, by the directory's path. For the
        metrics.
        """
        return {Path(directory): monitor for directory, monitor in self._stalls.items()}
