"""The coordinators of a running broker, created by the first request or internal partition that needs them.

A broker without groups and transactions never imports their modules, so it starts faster.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.server.internal_topics import InternalTopics

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.groups.coordinator import GroupCoordinator
    from kafkapy.coordinator.offsets.manager import OffsetManager
    from kafkapy.coordinator.room import Room
    from kafkapy.coordinator.shard_loader import LoadQueue
    from kafkapy.coordinator.shards import Shards
    from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator
    from kafkapy.coordinator.transactions.machine import TransactionMachine
    from kafkapy.coordinator.transactions.maintenance import TransactionSettings
    from kafkapy.replica.followed_partition import FollowedPartition
    from kafkapy.replica.markers import MarkerWriter
    from kafkapy.replica.partition import Partition
    from kafkapy.replica.verification import TransactionVerifier
    from kafkapy.runtime.scheduler import Scheduler
    from kafkapy.runtime.timer import Timer
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.coordinators")

_RETRY_S = 1.0


class Coordinators:
    """Creates the group coordinator, the transaction coordinator and their parts when they are first needed. Handlers
    use them as `broker.groups`, `broker.offsets` and so on."""

    def __init__(self, services: Services, timer: Timer, scheduler: Scheduler) -> None:
        self._services = services
        self._timer = timer
        self._scheduler = scheduler
        # The first thread that needs a part creates it, and with it other parts that it needs: the lock is reentrant.
        self._lock = threading.RLock()
        self._parts: dict[str, Any] = {}
        self.topics = InternalTopics(services)

    # --- parts

    @property
    def groups(self) -> GroupCoordinator:
        return self._part("groups", self._make_groups)  # type: ignore[no-any-return]

    @property
    def offsets(self) -> OffsetManager:
        return self._part("offsets", self._make_offsets)  # type: ignore[no-any-return]

    @property
    def transactions(self) -> TransactionCoordinator:
        return self._part("transactions", self._make_transactions)  # type: ignore[no-any-return]

    @property
    def markers(self) -> MarkerWriter:
        return self._part("markers", self._make_markers)  # type: ignore[no-any-return]

    @property
    def verifier(self) -> TransactionVerifier:
        return self._part("verifier", self._make_verifier)  # type: ignore[no-any-return]

    @property
    def group_shards(self) -> Shards[GroupMachine]:
        return self._part("group shards", self._make_group_shards)  # type: ignore[no-any-return]

    @property
    def transaction_shards(self) -> Shards[TransactionMachine]:
        return self._part("transaction shards", self._make_transaction_shards)  # type: ignore[no-any-return]

    def existing(self, name: str) -> Any:
        """Return the coordinator, or part of one, that has this name. Return None, without creating it, if it does not
        exist yet."""
        return self._parts.get(name)

    def shards_of(self, topic: str) -> Shards[Any]:
        """Return the shards, the partitions of a topic with the state loaded from them. The topic is
        `__consumer_offsets` or `__transaction_state`."""
        return self.group_shards if topic == GROUPS else self.transaction_shards

    def _part(self, name: str, make: Callable[[], Any]) -> Any:
        part = self._parts.get(name)
        if part is None:
            with self._lock:
                part = self._parts.get(name)
                if part is None:
                    part = self._parts[name] = make()
        return part

    # --- creating the parts

    def _make_groups(self) -> GroupCoordinator:
        from kafkapy.coordinator.groups.coordinator import GroupCoordinator

        return GroupCoordinator(self.group_shards)

    def _make_offsets(self) -> OffsetManager:
        from kafkapy.coordinator.offsets.manager import OffsetManager

        services = self._services
        return OffsetManager(self.group_shards, lambda: services.config, services.clock)

    def _make_transactions(self) -> TransactionCoordinator:
        from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator

        services = self._services
        return TransactionCoordinator(
            self.transaction_shards,
            lambda done: services.producer_ids.give(done, services.disk_pool.submit),
            self._transaction_settings,
            services.clock,
        )

    def _make_markers(self) -> MarkerWriter:
        from kafkapy.replica.markers import MarkerWriter

        def offsets_ended(index: int, producer_id: int, committed: bool, then: Callable[[], None]) -> None:
            self.offsets.transaction_ended(index, producer_id, committed, then)

        services = self._services
        return MarkerWriter(services.replicas, services.clock, offsets_ended, self._request_timeout_s)

    def _make_verifier(self) -> TransactionVerifier:
        from kafkapy.replica.verification import TransactionVerifier
        from kafkapy.server.transaction_peers import Verification

        services = self._services
        return TransactionVerifier(
            services.replicas,
            Verification(
                services.cache, services.broker_id, self.transactions, services.peers, self._request_timeout_s
            ).ask,
            lambda: bool(services.config["transaction.partition.verification.enable"]),
        )

    def _make_group_shards(self) -> Shards[GroupMachine]:
        from kafkapy.coordinator.group_counts import GroupCounts
        from kafkapy.coordinator.group_machine import GroupMachine, base_sequence_of

        counts = self._parts["group counts"] = GroupCounts()
        services = self._services
        room = self._room("group", "kafkapy.max.groups", "group shards", lambda machine: len(machine.groups))
        interval_s = services.config["offsets.retention.check.interval.ms"] / 1000
        self._scheduler.schedule("offset-expiry", lambda: self.offsets.expire(), interval_s, interval_s)
        return self._make_shards(
            GROUPS,
            lambda index: GroupMachine(lambda: services.config, counts, room),
            block_bytes=lambda: int(services.config["offsets.load.buffer.size"]),
            replay=GroupMachine.replay_block,
            codec=lambda: int(services.config["offsets.topic.compression.codec"]),
            outlives_epoch=True,
            base_sequence=base_sequence_of,
            acks=lambda: int(services.config["offsets.commit.required.acks"]),
            timeout_ms=lambda: int(services.config["offsets.commit.timeout.ms"]),
        )

    def _make_transaction_shards(self) -> Shards[TransactionMachine]:
        from kafkapy.coordinator.transactions.completion import Completion
        from kafkapy.coordinator.transactions.machine import TransactionMachine
        from kafkapy.coordinator.transactions.maintenance import Maintenance
        from kafkapy.server.transaction_peers import MarkerSender

        services = self._services
        sender = MarkerSender(services.cache, services.broker_id, self.markers, services.peers, self._request_timeout_s)
        completion = Completion(sender, sender.exists, services.disk_pool.submit)
        maintenance = Maintenance(self._transaction_settings)
        setting = "kafkapy.max.transactional.ids"
        room = self._room("transactional id", setting, "transaction shards", lambda machine: len(machine.entries))
        return self._make_shards(
            TRANSACTIONS,
            lambda index: TransactionMachine(completion, maintenance, room),
            block_bytes=lambda: int(services.config["transaction.state.log.load.buffer.size"]),
            timeout_ms=lambda: int(services.config["request.timeout.ms"]),
        )

    def _room(self, what: str, setting: str, shards: str, size: Callable[[Any], int]) -> Room:
        from kafkapy.coordinator.room import Room

        services = self._services

        def count() -> int:
            # Read without the shards' locks: the caller holds one of them.
            return sum(size(shard.machine) for shard in self.existing(shards).active())

        return Room(what, setting, services.config[setting], count, services.clock)

    def _make_shards(self, topic: str, make_machine: Callable[[int], Any], **how: Any) -> Shards[Any]:
        from kafkapy.coordinator.shards import Shards

        services = self._services
        return Shards(
            topic,
            make_machine,
            cache=services.cache,
            replicas=services.replicas,
            queue=self._part("load queue", _make_queue),
            clock=services.clock,
            timer=self._timer,
            partitions=lambda: self.topics.partitions_of(topic),
            **how,
        )

    def _request_timeout_s(self) -> float:
        return float(self._services.config["request.timeout.ms"] / 1000)

    def _transaction_settings(self) -> TransactionSettings:
        from kafkapy.coordinator.transactions.maintenance import TransactionSettings

        config = self._services.config
        return TransactionSettings(
            max_timeout_ms=config["transaction.max.timeout.ms"],
            expiration_ms=config["transactional.id.expiration.ms"],
            abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expire_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )

    # --- callbacks for partitions that gain or lose leadership, on any thread

    def became_leader(self, partition: Partition) -> None:
        """Called when this broker becomes the leader of a partition: start loading its state if the partition belongs
        to `__consumer_offsets` or `__transaction_state`. Nothing is done for other topics."""
        try:
            # Also create the parts that requests need: in a first request, the imports would block a network thread.
            # This comes first: if it fails, this method is called again, and `start_loading` must not be repeated.
            if partition.topic == GROUPS:
                self._part("for groups", lambda: (self.groups, self.offsets))
                self.group_shards.start_loading(partition)
            elif partition.topic == TRANSACTIONS:
                self._part("for transactions", lambda: (self.transactions, self.verifier))
                self.transaction_shards.start_loading(partition)
        except Exception:  # an import may find no file descriptor or no memory
            log.exception("the coordinator of %s-%d cannot start yet; trying again", partition.topic, partition.index)
            self._timer.schedule(_RETRY_S, lambda: self._became_leader_again(partition))

    def _became_leader_again(self, partition: Partition) -> None:
        if partition.gone is None:
            self.became_leader(partition)

    def followed(self, partition: FollowedPartition) -> None:
        """Called when this broker begins to follow a partition: forget the calls that wait until this broker leads the
        partition."""
        shards = self.existing("group shards" if partition.topic == GROUPS else "transaction shards")
        if shards is not None and partition.topic == shards.topic and partition.gone is None:
            shards.follows(partition.index)

    def lost_leadership(self, partition: Partition) -> None:
        """Called when this broker is no longer the leader of a partition: unload the coordinator state that was loaded
        from the partition, if there is any."""
        if partition.topic == GROUPS or partition.topic == TRANSACTIONS:
            self.shards_of(partition.topic).unload(partition)

    def topic_deleted(self, topic: str, partitions: Collection[int]) -> None:
        """Delete the offsets that groups have committed for these partitions of a deleted topic.

        Blocks until they are deleted in all loaded partitions of `__consumer_offsets`. So offsets that are committed to
        a new topic of the same name, created after this method returns, are kept.
        """
        if "group shards" in self._parts or GROUPS in self._services.cache:
            self.offsets.topic_deleted(topic, set(partitions))

    # --- stop

    def stop(self) -> None:
        """Answer all pending requests of the coordinators, and let them append no more records. The network must still
        be able to send responses."""
        with self._lock:
            parts = dict(self._parts)
        for name in ("transaction shards", "group shards"):
            if name in parts:
                parts[name].stop()
        if "load queue" in parts:
            parts["load queue"].stop()


def _make_queue() -> LoadQueue:
    from kafkapy.coordinator.shard_loader import LoadQueue

    return LoadQueue()
