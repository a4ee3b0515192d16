"""Applies the controller's decisions: which partitions this broker leads, follows or removes.

The controller may be in this process or on another broker. Source: ReplicaManager.becomeLeaderOrFollower and
stopReplicas.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.failures import Shortage
from kafkapy.log.partition_log import PartitionLog
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import ANY_EPOCH, NO_LEADER, TOPIC_DELETED, PartitionRole, StopPartition
from kafkapy.replica.manager import NO_EPOCH, ReplicaManager, check_later
from kafkapy.runtime.threads import run_all

log = logging.getLogger("kafkapy.replica.roles")

TopicPartition = tuple[str, int]
Change = PartitionRole | StopPartition
Failures = dict[TopicPartition, KafkaError]

RETRY_S = 1.0  # how often roles that a full disk or another shortage has prevented are tried again
LOADED_S = 1.0  # how often to check whether all logs are loaded, before the controller is asked for the roles again
# A new leader writes its leader epoch to the disk and waits for that. A file system commits what several threads wait
# for together.
_THREADS = 4
_TOGETHER = 2  # these threads are started for at least so many changes that wait for the disk
MOST_IN_VAIN = 100  # `take_again` pauses after so many roles that still fail: requests of the controller wait meanwhile


class Roles:
    """Applies the changes of partition roles that the controller sends to this broker.

    All methods may wait for the disk; `apply` may run on several threads at a time.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        config_of: Callable[[str], LogConfig],
        reload_config: Callable[[str], object] = lambda topic: None,
        cache: MetadataCache | None = None,
        later: Callable[[float, Callable[[], object]], object] = lambda delay_s, work: None,
        ask_for_roles: Callable[[], object] = lambda: None,
    ) -> None:
        """`config_of(topic)` returns the settings of the topic's logs. `reload_config(topic)` applies the present
        settings to all logs of the topic on this broker. Both raise KafkaError if the settings are invalid.
        `cache` gets the partition leaders for Metadata responses. `later(delay_s, work)` calls `work()` after a delay,
        on the thread that carries out the controller's requests. `ask_for_roles()` asks the controller to send all
        roles of this broker again.
        """
        self._replicas = replicas
        self._config_of = config_of
        self._reload_config = reload_config
        self._cache = MetadataCache() if cache is None else cache
        self._lock = threading.Lock()
        self._controller_epoch = 0
        self._waiting: dict[TopicPartition, PartitionRole] = {}  # roles of partitions whose logs are loading
        self._refused: dict[TopicPartition, PartitionRole] = {}  # roles not taken: the topic's settings were invalid
        self._later = later
        self._short: dict[TopicPartition, PartitionRole] = {}  # roles not taken because of a shortage, to try again
        self._is_short = False  # `take_again` is due
        self._ask_for_roles = ask_for_roles
        self._gave_up = False  # since the shortage began, a replica was reported as offline to the controller
        self._will_ask = False  # `_ask_when_loaded` is due

    def apply(self, controller_epoch: int, changes: Sequence[Change]) -> Failures:
        """Carry out the changes, those of different partitions at the same time; return the errors of failed changes by
        (topic, partition). A failure does not stop the others.

        All changes fail with STALE_CONTROLLER_EPOCH if a controller with a later epoch has called before. A role for a
        log that is loading counts as done: `loaded` carries it out. So does a role that a shortage prevents (a full
        disk, no free file descriptors): `take_again` takes it when the shortage is over. Two kinds of roles that a
        shortage prevents fail with the Shortage instead. One is the leader's role, if another member of the ISR is
        alive: the controller then elects that one. The other is any role of a broker that is alone, so that no topic is
        created without logs; such a role is taken again, too.

        A single change fails with KAFKA_STORAGE_ERROR if the log directory is offline. Otherwise a role fails with
        INCONSISTENT_TOPIC_ID if the log belongs to another topic id, with STALE_CONTROLLER_EPOCH if its leader epoch is
        not later than the present one, and with UNKNOWN_TOPIC_OR_PARTITION if this broker is not among the replicas. A
        stop of an earlier leader epoch fails with FENCED_LEADER_EPOCH.
        """
        if not self.accepts(controller_epoch):
            stale = KafkaError(
                Errors.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is over, {self._controller_epoch} is the latest",
            )
            return {(change.topic, change.partition): stale for change in changes}
        failures: Failures = {}
        by_partition: dict[TopicPartition, list[Change]] = {}
        for change in changes:
            by_partition.setdefault((change.topic, change.partition), []).append(change)

        def apply_in_order(one: TopicPartition) -> None:
            for change in by_partition[one]:
                try:
                    self._apply(change)
                except KafkaError as error:
                    failures[one] = error

        many = sum(map(self._waits_for_the_disk, changes)) >= _TOGETHER
        run_all([partial(apply_in_order, one) for one in by_partition], _THREADS if many else 1, "kafkapy-roles")
        return failures

    def _waits_for_the_disk(self, change: Change) -> bool:
        """Return True if a change will probably write to the disk and sync it: to create or delete a log, or to note a
        leader epoch."""
        if isinstance(change, StopPartition):
            return change.delete
        found = self._replicas.log_manager.get(change.topic, change.partition)
        if found is None:
            return True
        is_leader = change.leader == self._replicas.broker_id
        return is_leader and change.leader_epoch > found.leader_epochs.latest_epoch

    def update_metadata(self, controller_epoch: int, partitions: Sequence[PartitionRole]) -> None:
        """Store the leaders of these partitions for Metadata responses, as an UpdateMetadata request does.

        Does nothing if a controller with a later epoch has called before.
        """
        if self.accepts(controller_epoch):
            self._cache.update(partitions)

    def loaded(self, topic: str, index: int) -> None:
        """Apply the role of this partition that was stored while its log was loading. The log is loaded now, or cannot
        be loaded.
        """
        with self._lock:
            role = self._waiting.pop((topic, index), None)
        if role is not None:
            self._take_late(role)

    def settings_changed(self, topic: str) -> None:
        """Apply the roles of this topic that were refused because its settings were invalid. The settings may be valid
        now.
        """
        with self._lock:
            roles = [role for role in self._refused.values() if role.topic == topic]
        for role in roles:
            self._take_late(role)

    def _take_late(self, role: PartitionRole) -> None:
        try:
            self._take(role, is_late=True)
        except Shortage:
            return  # `take_again` takes the role
        except KafkaError as error:
            log.error("the role of %s-%d is not applied: %s", role.topic, role.partition, error.message)
            if error.code == Errors.KAFKA_STORAGE_ERROR:
                self._ask_soon()

    def _ask_soon(self) -> None:
        """Have the controller send all roles again, once for all roles that fail until then.

        The controller takes the role for done, as its request was answered before the role failed. The response to the
        repeated role tells the controller that the replica is offline, so that it elects another leader.
        """
        with self._lock:
            begins, self._will_ask = not self._will_ask, True
        if begins:
            self._later(LOADED_S, self._ask_when_loaded)

    def _ask_when_loaded(self) -> None:
        """Ask the controller for all roles if all logs are loaded. Otherwise this method is called again later.

        It waits for that, because each call makes the controller send all roles of this broker, and a repeated role
        counts as done if its log is still loading.
        """
        if not self._replicas.log_manager.loading.wait(0):
            self._later(LOADED_S, self._ask_when_loaded)
            return
        with self._lock:
            self._will_ask = False
        self._ask_for_roles()

    def take_again(self) -> None:
        """Take the roles that a shortage has prevented, if it is over now. Otherwise this method is called again later.

        Runs on the thread that carries out the controller's requests, so that the partition of a role is not deleted
        meanwhile.
        """
        with self._lock:
            roles = list(self._short.values())
        in_vain = 0
        try:
            for role in roles:
                key = role.topic, role.partition
                with self._lock:
                    if self._short.get(key) is not role:
                        continue  # a later role or a deletion has come
                    del self._short[key]
                self._take_late(role)
                in_vain += key in self._short  # prevented again, and now behind the other roles
                if in_vain >= MOST_IN_VAIN:
                    break
        finally:
            with self._lock:
                self._is_short = lasts = bool(self._short)
                asks = self._gave_up and not lasts
                self._gave_up &= lasts
            if asks:
                self._ask_for_roles()
            if lasts:
                self._later(RETRY_S, self.take_again)
            else:
                log.warning("the shortage is over: all roles that waited for it are applied")

    def accepts(self, controller_epoch: int) -> bool:
        """Return False if a controller with a later epoch has called before. Otherwise remember this epoch.

        One epoch is remembered for all kinds of requests: an UpdateMetadata request of a new controller also fences the
        LeaderAndIsr and StopReplica requests of the previous one.
        """
        with self._lock:
            self._controller_epoch = max(self._controller_epoch, controller_epoch)
            return self._controller_epoch == controller_epoch

    def _apply(self, change: Change) -> None:
        if isinstance(change, StopPartition):
            self._stop(change)
        elif not self._waits(change):
            self._take(change)

    def _stop(self, stop: StopPartition) -> None:
        topic, index = stop.topic, stop.partition
        with self._lock:
            stored = [self._waiting.get((topic, index)), self._short.get((topic, index))]
        epochs = [role.leader_epoch for role in stored if role is not None]
        epoch = max(self._replicas.leader_epoch(topic, index), *epochs, NO_EPOCH)
        if stop.leader_epoch not in (ANY_EPOCH, TOPIC_DELETED) and stop.leader_epoch < epoch:
            self._check_online(topic, index)
            raise KafkaError(
                Errors.FENCED_LEADER_EPOCH,
                f"leader epoch {stop.leader_epoch} of {topic}-{index} is over: {epoch} is the latest",
            )
        if not stop.delete:  # a leader keeps its role
            self._replicas.stop_fetching(topic, index)
            return
        with self._lock:
            self._waiting.pop((topic, index), None)
            self._refused.pop((topic, index), None)
            self._short.pop((topic, index), None)
        self._replicas.delete(topic, index)

    def _check_online(self, topic: str, index: int) -> PartitionLog | None:
        """Return the partition's log, None if this broker has none. Raise LogDirFailure if its log directory is
        offline.
        """
        partition_log = self._replicas.log_manager.get(topic, index)
        if partition_log is not None:
            partition_log.env.check()
        return partition_log

    def _waits(self, role: PartitionRole) -> bool:
        """Return True, and store the role, if the log is loading, so that `loaded` will apply the role later.

        Return False if the role must be applied now. Raises KafkaError STALE_CONTROLLER_EPOCH if a later role is stored
        already.
        """
        key = role.topic, role.partition
        loading = self._replicas.log_manager.loading
        if role.is_new or key not in loading:
            return False
        with self._lock:
            before = self._waiting.get(key)
            if before is not None:
                check_later(role, before.leader_epoch)
            self._waiting[key] = role
        if key in loading:
            return True
        # The load may have ended after the first check. Either `loaded` ran after the role was stored, and has applied
        # the role. Or `loaded` ran before, and the role is still stored: then this thread applies the role.
        with self._lock:
            return self._waiting.pop(key, None) is None

    def _take(self, role: PartitionRole, *, is_late: bool = False) -> None:
        """Take a role. If a shortage prevents that, have it taken again later.

        Raise the Shortage if this broker is alone, or if another broker can lead in its place. In other cases an error
        would not help: the controller would take the replica for offline and send it no more roles.
        """
        try:
            self._take_now(role)
        except Shortage as shortage:
            others = [one.id for one in self._cache.live_brokers() if one.id != self._replicas.broker_id]
            gives_up = not is_late and role.leader == self._replicas.broker_id and not set(others).isdisjoint(role.isr)
            if gives_up:
                # The next leader is in a later epoch, of which the controller may not tell a replica that is offline.
                role = role._replace(leader=NO_LEADER)
            self._keep(role, shortage, gives_up=gives_up)
            if gives_up or not others:
                raise

    def _keep(self, role: PartitionRole, shortage: Shortage, *, gives_up: bool) -> None:
        with self._lock:
            self._gave_up |= gives_up
            self._short[role.topic, role.partition] = role
            begins, self._is_short = not self._is_short, True
        if begins:
            log.error(
                "the role of %s-%d cannot be taken now, and others may follow; they are tried again until the shortage "
                "is over: %s",
                role.topic,
                role.partition,
                shortage.message,
            )
            self._later(RETRY_S, self.take_again)

    def _take_now(self, role: PartitionRole) -> None:
        partition_log = self._check_online(role.topic, role.partition)
        if partition_log is not None and role.topic_id != ZERO_ID:
            partition_log.check_topic_id(role.topic_id)
        if partition_log is not None and self._only_topic_id(role, partition_log):
            return
        self._replicas.check_later(role)
        with self._lock:
            kept = self._short.get((role.topic, role.partition))
        if kept is not None:
            check_later(role, kept.leader_epoch - 1)  # the same role may come twice
        if self._replicas.broker_id not in role.replicas:
            raise KafkaError(
                Errors.UNKNOWN_TOPIC_OR_PARTITION,
                f"this broker is not among the replicas {list(role.replicas)} of {role.topic}-{role.partition}",
            )
        known = self._replicas.partition_epoch(role.topic, role.partition)
        if role.partition_epoch < known:
            log.info(
                "the role of %s-%d is skipped: its partition epoch is %d, the controller has answered a change of the "
                "ISR with %d already",
                role.topic,
                role.partition,
                role.partition_epoch,
                known,
            )
            return
        with self._lock:
            self._refused.pop((role.topic, role.partition), None)
            self._short.pop((role.topic, role.partition), None)
        if role.leader == self._replicas.broker_id:
            self._lead(role)
        else:
            self._follow(role)

    def _only_topic_id(self, role: PartitionRole, partition_log: PartitionLog) -> bool:
        """Take over the topic id of a role that changes nothing else. Return False for any other role.

        A cluster that is upgraded to topic ids sends them without a new leader epoch, and one that is downgraded sends
        roles without them.
        """
        if role.leader_epoch != self._replicas.leader_epoch(role.topic, role.partition):
            return False
        followed = self._replicas.followed(role.topic, role.partition)
        if role.topic_id != ZERO_ID and partition_log.topic_id is None:
            partition_log.assign_topic_id(role.topic_id)
        elif role.topic_id != ZERO_ID or partition_log.topic_id is None or followed is None:
            return False
        if followed is not None:
            followed.topic_id = role.topic_id
            self._replicas.on_followed(followed)  # from now on it is fetched by the id, or by the name
        return True

    def _lead(self, role: PartitionRole) -> None:
        try:
            config = self._config_of(role.topic)
            partition = self._replicas.make_leader(role, config)
        except KafkaError as error:  # such as invalid settings, or an offline log directory
            self._replicas.check_later(role)  # another thread may have applied a later role meanwhile, hence the error
            if not isinstance(error, Shortage):
                log.error("cannot lead %s-%d: %s", role.topic, role.partition, error.message)
            if not role.is_new:
                self._replicas.refuse(role.topic, role.partition, error)
                if error.code == Errors.INVALID_CONFIG:
                    with self._lock:
                        self._refused[role.topic, role.partition] = role
                    # The settings may have been corrected after they were read above, and `settings_changed` may have
                    # been called before the role was noted.
                    with suppress(KafkaError):
                        self._config_of(role.topic)
                        self._take(role)
                        return
            raise
        self._apply_changed_settings(role, partition.log.config)

    def _apply_changed_settings(self, role: PartitionRole, config: LogConfig) -> None:
        """Apply the topic's present settings to its logs if they have changed since `config`, with which the log was
        loaded.
        """
        ignored = config.format_ignored() if role.is_new and role.partition == 0 else None
        if ignored is not None:
            log.warning("topic %s: %s", role.topic, ignored)
        with suppress(KafkaError):  # the new settings are invalid: the log keeps its settings
            now = self._config_of(role.topic)
            if now is not config and now.values != config.values:
                self._reload_config(role.topic)

    def _follow(self, role: PartitionRole) -> None:
        where = f"{role.topic}-{role.partition}"
        if role.leader == NO_LEADER:
            message = f"{where} has no leader: its ISR is {list(role.isr)}"
        else:
            message = f"broker {role.leader} leads {where}"
        reason = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, message)
        followed = self._replicas.make_follower(role, self._valid_config_of(role.topic), reason)
        self._apply_changed_settings(role, followed.log.config)

    def _valid_config_of(self, topic: str) -> LogConfig:
        """Return the settings of the topic's logs; the broker's defaults, if the topic's settings are invalid.

        A follower must replicate in any case, and a leader with these settings refuses to lead.
        """
        try:
            return self._config_of(topic)
        except KafkaError as error:
            log.error("%s is followed with the broker's default settings: %s", topic, error.message)
            return self._replicas.log_manager.defaults
