"""Applying the controller's decisions: which partitions this broker leads, which it follows and which it removes.

The controller may be in this process or on another broker. Source: ReplicaManager.becomeLeaderOrFollower and
stopReplicas.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.roles import ANY_EPOCH, NO_LEADER, TOPIC_DELETED, PartitionRole, StopPartition
from kafkapy.replica.manager import ReplicaManager

log = logging.getLogger("kafkapy.replica.roles")

TopicPartition = tuple[str, int]
Change = PartitionRole | StopPartition
Failures = dict[TopicPartition, KafkaError]


class Roles:
    """Applies changes of roles. All methods may wait for the disk; `apply` may run on several threads at a time."""

    def __init__(
        self,
        replicas: ReplicaManager,
        config_of: Callable[[str], LogConfig],
        reload_config: Callable[[str], object] = lambda topic: None,
        cache: MetadataCache | None = None,
    ) -> None:
        """`config_of(topic)` returns the settings of the topic's logs. `reload_config(topic)` applies them to all logs
        that this broker leads. Both raise KafkaError if the settings are invalid. `cache` gets the leaders for clients.
        """
        self._replicas = replicas
        self._config_of = config_of
        self._reload_config = reload_config
        self._cache = MetadataCache() if cache is None else cache
        self._lock = threading.Lock()
        self._controller_epoch = 0
        self._waiting: dict[TopicPartition, PartitionRole] = {}  # roles of partitions whose logs are loading

    def apply(self, controller_epoch: int, changes: Sequence[Change]) -> Failures:
        """Carry out the changes, and return the errors of those that failed. A failed change does not stop the others.

        All changes fail with STALE_CONTROLLER_EPOCH if a controller with a later epoch has called before. A change for
        a log that is loading counts as done: `loaded` carries it out.
        """
        if not self._is_latest(controller_epoch):
            stale = KafkaError(
                Errors.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is over, {self._controller_epoch} is the latest",
            )
            return {(change.topic, change.partition): stale for change in changes}
        failures: Failures = {}
        for change in changes:
            try:
                self._apply(change)
            except KafkaError as error:
                failures[change.topic, change.partition] = error
        return failures

    def update_metadata(self, controller_epoch: int, partitions: Sequence[PartitionRole]) -> None:
        """Store the leaders of these partitions for Metadata responses: the work of an UpdateMetadata request.

        Ignored if a controller with a later epoch has called before.
        """
        if self._is_latest(controller_epoch):
            self._cache.update(partitions)

    def loaded(self, topic: str, index: int) -> None:
        """Carry out the change that has waited for this log. The log is loaded now, or cannot be loaded."""
        with self._lock:
            role = self._waiting.pop((topic, index), None)
        if role is not None:
            try:
                self._take(role)
            except KafkaError as error:
                log.error("the role of %s-%d is not applied: %s", topic, index, error.message)

    def next_epoch(self, topic: str, index: int) -> int:
        """Return the leader epoch for a partition without a state node in the metadata tree.

        If this broker leads the partition, it is the current leader epoch: only the node is gone. Otherwise it is the
        epoch after the latest in the log, so that no leader epoch is used twice.
        """
        led = self._replicas.led_epoch(topic, index)
        return led if led is not None else self._replicas.log_manager.last_leader_epoch(topic, index) + 1

    def _is_latest(self, controller_epoch: int) -> bool:
        """Return False if a controller with a later epoch has called before."""
        with self._lock:
            self._controller_epoch = max(self._controller_epoch, controller_epoch)
            return self._controller_epoch == controller_epoch

    def why_not_led(self, topic: str, index: int) -> KafkaError | None:
        """Return the error with which this broker refuses requests for the partition, None if it leads it."""
        try:
            self._replicas.get(topic, index)
        except KafkaError as error:
            return error
        return None

    def _apply(self, change: Change) -> None:
        if isinstance(change, StopPartition):
            self._check_not_older(change)
            with self._lock:
                self._waiting.pop((change.topic, change.partition), None)
            self._drop(change)
        elif not self._waits(change):
            self._take(change)

    def _waits(self, role: PartitionRole) -> bool:
        """Return True if the log is loading, so that `loaded` will apply the role. False for a new partition."""
        key = role.topic, role.partition
        loading = self._replicas.log_manager.loading
        if role.is_new or key not in loading:
            return False
        with self._lock:
            before = self._waiting.get(key)
            if before is None or before.leader_epoch <= role.leader_epoch:
                self._waiting[key] = role
        if key in loading:
            return True
        # The load may have ended after the first check: either `loaded` ran after the role was stored, and has taken
        # the role, or it ran before, and the role is still there. Then this thread takes it.
        with self._lock:
            return self._waiting.pop(key, None) is None

    def _take(self, role: PartitionRole) -> None:
        self._check_newer(role)
        if role.leader == self._replicas.broker_id:
            self._lead(role)
        else:
            self._follow(role)

    def _check_newer(self, role: PartitionRole) -> None:
        epoch = self._replicas.led_epoch(role.topic, role.partition)
        if epoch is not None and role.leader_epoch <= epoch:
            raise KafkaError(
                Errors.STALE_CONTROLLER_EPOCH,
                f"leader epoch {role.leader_epoch} of {role.topic}-{role.partition} is not later than {epoch}",
            )

    def _check_not_older(self, stop: StopPartition) -> None:
        epoch = self._replicas.led_epoch(stop.topic, stop.partition)
        if epoch is not None and stop.leader_epoch not in (ANY_EPOCH, TOPIC_DELETED) and stop.leader_epoch < epoch:
            raise KafkaError(
                Errors.FENCED_LEADER_EPOCH,
                f"leader epoch {stop.leader_epoch} of {stop.topic}-{stop.partition} is over: {epoch} is the latest",
            )

    def _lead(self, role: PartitionRole) -> None:
        try:
            config = self._config_of(role.topic)
            partition = self._replicas.make_leader(role, config)
        except KafkaError as error:  # such as invalid settings, or an offline log directory
            log.error("cannot lead %s-%d: %s", role.topic, role.partition, error.message)
            if not role.is_new:
                self._replicas.refuse_expected(role.topic, role.partition, error)
            raise
        self._apply_changed_settings(role, partition.log.config)

    def _apply_changed_settings(self, role: PartitionRole, config: LogConfig) -> None:
        """Apply settings that were changed while the log was loaded with the settings from before."""
        ignored = config.format_ignored() if role.is_new and role.partition == 0 else None
        if ignored is not None:
            log.warning("topic %s: %s", role.topic, ignored)
        with suppress(KafkaError):  # the new settings are invalid: the log keeps its settings
            now = self._config_of(role.topic)
            if now is not config and now.values != config.values:
                self._reload_config(role.topic)

    def _follow(self, role: PartitionRole) -> None:
        # Followers do not fetch from the leader yet: the log stays as it is, and this broker's appends are fenced.
        where = f"{role.topic}-{role.partition}"
        if role.leader == NO_LEADER:
            reason = KafkaError(Errors.LEADER_NOT_AVAILABLE, f"{where} has no leader: its ISR is {list(role.isr)}")
        else:
            reason = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"broker {role.leader} leads {where}")
        self._replicas.make_follower(role, reason)

    def _drop(self, stop: StopPartition) -> None:
        self._replicas.drop(stop.topic, stop.partition, delete=stop.delete)
