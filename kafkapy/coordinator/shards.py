"""The shards of one internal topic on this broker. A shard is one partition of the topic with its state machine.

This module finds the shard of a group id or transactional id, and loads and unloads shards. Each time that this broker
becomes leader of a partition, a new shard is created and loaded. The shard ends when the broker stops being the leader,
when the topic is deleted, or when the log directory fails.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkapy._ext.java_hash import hash_of_string
from kafkapy.coordinator.coordinator_log import ALL, NO_SEQUENCE, CoordinatorLog
from kafkapy.coordinator.shard import ACTIVE, Machine, Record, Shard
from kafkapy.coordinator.shard_loader import LoadQueue, Replay, load, replay_batches
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import Shortage
from kafkapy.record.compression import NONE

if TYPE_CHECKING:
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.replica.manager import ReplicaManager
    from kafkapy.replica.partition import Partition
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.timer import Timer

M = TypeVar("M", bound=Machine)

log = logging.getLogger("kafkapy.coordinator.shards")

_RETRY_S = 1.0  # after a load that was short of memory or of file descriptors

_LOWEST = -(1 << 31)


@lru_cache(maxsize=4096)  # every request of a client names the same group
def partition_of(key: str, partitions: int) -> int:
    """Return the partition of an internal topic with `partitions` partitions that stores a group id or transactional
    id: Java's hash of the id modulo `partitions`, as in Kafka.

    Like Kafka's Utils.abs, this takes the absolute value of the lowest int32 to be 0.
    """
    value = hash_of_string(key)
    return (0 if value == _LOWEST else abs(value)) % partitions


def no_sequence(records: Sequence[Record]) -> int:
    return NO_SEQUENCE


def not_compressed() -> int:
    return NONE


def all_replicas() -> int:
    return ALL


def default_timeout_ms() -> int:
    return 30_000


class Shards(Generic[M]):
    """The shards of an internal topic, one for each partition that this broker leads. A shard is a partition with its
    state machine.

    make_machine   creates the empty state machine of a partition; the machine's `shard` attribute is set afterwards
    partitions     returns the number of partitions that the topic will be created with, used while it does not exist
    cache          the metadata cache, which has the number of partitions and their leaders
    outlives_epoch  True: a loaded shard stays when this broker begins another leader epoch of the partition without
                   having followed in between. False: the partition is loaded again.
    block_bytes    returns how many bytes of the log a load reads at a time
    replay         loads a block of the log into a state machine
    codec, base_sequence, acks, timeout_ms   see CoordinatorLog
    """

    def __init__(
        self,
        topic: str,
        make_machine: Callable[[int], M],
        *,
        cache: MetadataCache,
        replicas: ReplicaManager,
        queue: LoadQueue,
        clock: Clock,
        timer: Timer,
        partitions: Callable[[], int],
        block_bytes: Callable[[], int],
        outlives_epoch: bool = False,
        replay: Replay = replay_batches,
        codec: Callable[[], int] = not_compressed,
        base_sequence: Callable[[Sequence[Record]], int] = no_sequence,
        acks: Callable[[], int] = all_replicas,
        timeout_ms: Callable[[], int] = default_timeout_ms,
    ) -> None:
        self.topic = topic
        self._make_machine = make_machine
        self._cache = cache
        self._replicas = replicas
        self._queue = queue
        self._clock = clock
        self._timer = timer
        self._partitions = partitions
        self._block_bytes = block_bytes
        self._outlives_epoch = outlives_epoch
        self._replay = replay
        self._codec = codec
        self._base_sequence = base_sequence
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._shards: dict[int, tuple[Partition, Shard[M]]] = {}
        # By partition: the functions that `each` must still call, once the partition's shard has been created and
        # loaded.
        self._waiting_calls: dict[int, list[Callable[[Shard[M]], object]]] = {}
        self._counted: tuple[bytes, int] | None = None  # the topic's id and number of partitions
        self._stopped = False

    # --- finding

    def partition_for(self, key: str) -> int:
        """Return the partition of the internal topic that stores a group id or transactional id. The partition's leader
        may be another broker."""
        counted = self._counted
        if counted is not None and counted[0] == self._cache.topic_id(self.topic) and self.topic in self._cache:
            return partition_of(key, counted[1])
        return partition_of(key, self._count() or self._partitions())

    def _count(self) -> int:
        """Return the number of partitions of the topic, 0 if the metadata cache does not have the topic.

        As in Kafka, partitions that are added to the topic are used only after a restart: otherwise most keys would
        suddenly belong to a partition that does not have their state.
        """
        topic_id = self._cache.topic_id(self.topic)
        indexes = list(self._cache.indexes(self.topic))
        count = max(indexes, default=-1) + 1
        if count == len(indexes):  # otherwise the controller has not sent all partitions of the new topic yet
            self._counted = (topic_id, count) if count else None
        return count

    def of(self, key: str) -> Shard[M]:
        """Return the active shard that stores a group id or transactional id.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if the shard is not loaded yet, NOT_COORDINATOR if this broker
        does not lead the partition, or COORDINATOR_NOT_AVAILABLE if this broker is stopping.
        """
        if self._shards and self.topic not in self._cache:
            # This broker leads partitions already, but does not know the number of partitions, without which it might
            # look for a key in the wrong shard.
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"this broker has no metadata of {self.topic} yet")
        index = self.partition_for(key)
        shard = self.at(index)
        if shard is None:
            raise self._absence_error(index)
        if shard.is_loading:
            self._queue.prioritize(shard)
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"{shard.name} is being loaded")
        shard.check()
        return shard

    def at(self, index: int) -> Shard[M] | None:
        """Return the shard of the partition `index`, in whatever state the shard is, or None if this broker does not
        lead the partition."""
        found = self._shards.get(index)
        return found[1] if found is not None else None

    def active(self) -> list[Shard[M]]:
        """Return the loaded shards (partitions of the internal topic with their state machines) in the order of their
        partitions. Shards that have ended or whose load has failed are left out."""
        return [
            shard for _, (_, shard) in sorted(self._shards.items()) if shard.state == ACTIVE and not shard.is_loading
        ]

    @property
    def is_loading(self) -> bool:
        """True if a partition that this broker leads, or is about to lead, is not loaded yet. A list of all groups or
        transactions would then be incomplete."""
        if any(shard.is_loading for _, shard in self._shards.values()):
            return True
        return any(self._will_load(index) for index in list(self._cache.indexes(self.topic)))

    def _will_load(self, index: int) -> bool:
        """Return True if this broker leads the partition, or is about to lead it, and the partition's shard does not
        exist yet."""
        return index not in self._shards and self._is_coming(index)

    def _is_coming(self, index: int) -> bool:
        """Return True if this broker leads the partition, or is about to lead it once its log is loaded."""
        # `is_expected` must be checked first: the replica manager adds the partition before it clears `is_expected`,
        # and calls `start_loading` after both. In the other order, both could be False for a partition that is just
        # getting this broker as leader.
        is_expected = self._replicas.is_expected(self.topic, index) and not self._is_elsewhere(index)
        return is_expected or self._replicas.holds(self.topic, index)

    def _is_elsewhere(self, index: int) -> bool:
        """Return True if, as far as this broker knows, another broker or no broker leads the partition."""
        leader = self._cache.leader(self.topic, index)
        return leader is not None and leader.id != self._replicas.broker_id

    def each(self, act: Callable[[Shard[M]], object]) -> None:
        """Call `act` with the shard of every partition that this broker leads: at once for loaded shards, and at the
        end of the load for shards that are loading or about to be created."""
        with self._lock:
            present = [shard for _, shard in self._shards.values()]
            for index in list(self._cache.indexes(self.topic)):
                if self._will_load(index):
                    self._waiting_calls.setdefault(index, []).append(act)
        for shard in present:
            shard.when_loaded(partial(act, shard))

    def follows(self, index: int) -> None:
        """Forget the calls of `each` that wait for the shard of this partition, because another broker leads it now."""
        with self._lock:
            self._waiting_calls.pop(index, None)

    def _absence_error(self, index: int) -> KafkaError:
        if self._stopped:
            return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, "this broker is stopping")
        name = f"{self.topic}-{index}"
        try:
            # this also moves the partition's log to the front of the loading queue
            self._replicas.get(self.topic, index)
        except KafkaError as error:
            if not self._is_coming(index):
                return KafkaError(Errors.NOT_COORDINATOR, f"{name} is not led by this broker: {error.message}")
        return KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is about to be loaded")

    # --- loading and unloading

    def start_loading(self, partition: Partition) -> None:
        """Create the shard of a partition that this broker now leads, and start to load it.

        If a shard of a later leader epoch exists, this does nothing: two threads may make their calls in any order. The
        loaded shard of an earlier epoch may stay if it has the state that a load would find, so that members that wait
        for a rebalance notice nothing (see `_keep`). Kafka, too, keeps the groups that it has in memory.
        """
        if self._outlives_epoch and self._keep(partition):
            return
        machine = self._make_machine(partition.index)
        shard_log = CoordinatorLog(
            partition, self._clock, self._timer, self._codec, self._base_sequence, self._acks, self._timeout_ms
        )
        shard: Shard[M] = Shard(self.topic, partition.index, machine, shard_log, clock=self._clock, timer=self._timer)
        shard.leader_epoch = partition.leader_epoch
        machine.shard = shard
        with self._lock:
            before = self._shards.get(partition.index)
            if before is not None and before[0].leader_epoch > partition.leader_epoch:
                return
            self._shards = {**self._shards, partition.index: (partition, shard)}
            for act in self._waiting_calls.pop(partition.index, ()):
                shard.when_loaded(partial(act, shard))
        if before is not None:
            before[1].end()
        if partition.gone is not None or self._stopped:  # `unload` may have been called before the shard was registered
            self.unload(partition)
        elif partition.log.log_start_offset == partition.log.log_end_offset:
            self._load(shard, partition, self._block_bytes())
        else:
            self._queue.put(shard, partial(self._load, shard, partition, self._block_bytes()))

    def _load(self, shard: Shard[M], partition: Partition, block_bytes: int) -> None:
        def again() -> None:
            with self._lock:  # `unload` may have put the shard's end into the queue: then do not load it again
                if self._shards.get(partition.index) == (partition, shard):
                    self._queue.put(shard, partial(self._load, shard, partition, block_bytes))

        try:
            load(shard, partition, self._replay, block_bytes, self._is_stopped)
        except (Shortage, MemoryError) as reason:
            level = logging.DEBUG if isinstance(reason, Shortage) else logging.WARNING  # a Shortage is reported already
            log.log(level, "%s cannot be loaded now, and will be retried: %s", shard.name, str(reason) or "no memory")
            shard.machine = self._make_machine(partition.index)  # an empty one, without the replayed part of the log
            shard.machine.shard = shard
            self._timer.schedule(_RETRY_S, again)

    def _keep(self, partition: Partition) -> bool:
        """Keep the shard that was loaded in an earlier leader epoch, for the leader epoch of `partition`. Return False
        if there is no such shard, or if its state may differ from the log's.

        No other broker can have appended to the partition if this broker has led it in all epochs in between.
        """
        with self._lock:
            found = self._shards.get(partition.index)
            if found is None:
                return False
            before, shard = found
            if shard.is_loading or shard.has_ended or not before.precedes(partition):
                return False
            shard.leader_epoch = partition.leader_epoch
            self._shards = {**self._shards, partition.index: (partition, shard)}
        if partition.gone is not None:  # `unload` may have been called before the partition was registered
            self.unload(partition)
        return True

    def unload(self, partition: Partition) -> None:
        """End the shard of a partition that this broker no longer leads. The shard ends on a load thread, after this
        returns.

        This must not wait for a shard's lock. If a log directory fails in the middle of an append, this runs under the
        lock of the shard that appends. Another shard of the same directory may hold its own lock and fail too, so each
        thread could wait for the lock of the other.
        """
        with self._lock:
            found = self._shards.get(partition.index)
            if found is None or found[0] is not partition:
                return
            self._shards = {index: entry for index, entry in self._shards.items() if index != partition.index}
        self._queue.put(found[1], found[1].end)
        self._queue.prioritize(found[1])

    def stop(self) -> None:
        """End the shards of all partitions: pending requests are answered with NOT_COORDINATOR, and no more records are
        appended."""
        self._stopped = True
        with self._lock:
            shards, self._shards = self._shards, {}
        for _, shard in shards.values():
            shard.end()

    def _is_stopped(self) -> bool:
        return self._stopped or self._queue.stopped
