"""The shards of one internal topic on this broker: which of them a key belongs to, and their coming and going.

A shard comes when this broker begins to lead the partition, and goes with it (a deleted topic, a directory that
fails). Each time it is a new one, made and loaded anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkapy._ext.java_hash import hash_of_string
from kafkapy.coordinator.coordinator_log import NO_SEQUENCE, CoordinatorLog
from kafkapy.coordinator.loading import LoadQueue, Replay, load, replay_batches
from kafkapy.coordinator.shard import ACTIVE, Machine, Record, Shard
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.compression import NONE

if TYPE_CHECKING:
    from kafkapy.metadata.topics import TopicRegistry
    from kafkapy.replica.manager import ReplicaManager
    from kafkapy.replica.partition import Partition
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.timer import Timer

M = TypeVar("M", bound=Machine)

_LOWEST = -(1 << 31)


@lru_cache(maxsize=4096)  # each request of a client names the same group again
def partition_of(key: str, partitions: int) -> int:
    """The partition that holds a group or a transactional id (Kafka's Utils.abs makes the lowest number 0)."""
    value = hash_of_string(key)
    return (0 if value == _LOWEST else abs(value)) % partitions


def no_sequence(records: Sequence[Record]) -> int:
    return NO_SEQUENCE


def not_compressed() -> int:
    return NONE


def all_replicas() -> int:
    return -1


class Shards(Generic[M]):
    """`make_machine(index)` makes the state of a shard, empty; it gets its shard as `machine.shard`.

    partitions: how many a topic that is not there will have. block_bytes: how much a load reads at once.
    replay: how a block is shown to a machine. codec, base_sequence, acks: see CoordinatorLog.
    """

    def __init__(
        self,
        topic: str,
        make_machine: Callable[[int], M],
        *,
        topics: TopicRegistry,
        replicas: ReplicaManager,
        queue: LoadQueue,
        clock: Clock,
        timer: Timer,
        partitions: Callable[[], int],
        block_bytes: Callable[[], int],
        replay: Replay = replay_batches,
        codec: Callable[[], int] = not_compressed,
        base_sequence: Callable[[Sequence[Record]], int] = no_sequence,
        acks: Callable[[], int] = all_replicas,
    ) -> None:
        self.topic = topic
        self._make_machine = make_machine
        self._topics = topics
        self._replicas = replicas
        self._queue = queue
        self._clock = clock
        self._timer = timer
        self._partitions = partitions
        self._block_bytes = block_bytes
        self._replay = replay
        self._codec = codec
        self._base_sequence = base_sequence
        self._acks = acks
        self._lock = threading.Lock()
        self._shards: dict[int, tuple[Partition, Shard[M]]] = {}
        self._counted: tuple[bytes, int] = (b"", 0)
        self._stopped = False

    # --- finding

    def partition_for(self, key: str) -> int:
        """Where a group or a transactional id is kept, whether or not this broker leads the partition."""
        topic = self._topics.get(self.topic)
        if topic is None:
            return partition_of(key, self._partitions())
        # Partitions that the topic gets later count from the next start on, as in Kafka: what is in the others would
        # be looked for in the wrong place at once.
        if self._counted[0] != topic.id:
            self._counted = (topic.id, len(topic.assignment))
        return partition_of(key, self._counted[1])

    def of(self, key: str) -> Shard[M]:
        """The shard of a key, active.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, and COORDINATOR_NOT_AVAILABLE at a stop.
        """
        index = self.partition_for(key)
        shard = self.at(index)
        if shard is None:
            raise self._why_absent(index)
        if shard.is_loading:
            self._queue.hasten(shard)
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"{shard.name} is being loaded")
        shard.check()
        return shard

    def at(self, index: int) -> Shard[M] | None:
        """The shard of a partition, in whatever state; None if it is not led here."""
        found = self._shards.get(index)
        return found[1] if found is not None else None

    def active(self) -> list[Shard[M]]:
        """Those that are loaded, by index."""
        return [
            shard for _, (_, shard) in sorted(self._shards.items()) if shard.state == ACTIVE and not shard.is_loading
        ]

    @property
    def is_loading(self) -> bool:
        """Whether some shard is not loaded yet: who lists everything would miss what is in it."""
        if any(shard.is_loading for _, shard in self._shards.values()):
            return True
        topic = self._topics.get(self.topic)
        return topic is not None and any(self._is_coming(index) for index in topic.assignment)

    def _is_coming(self, index: int) -> bool:
        return index not in self._shards and self._replicas.is_expected(self.topic, index)

    def _why_absent(self, index: int) -> KafkaError:
        if self._stopped:
            return KafkaError(Errors.COORDINATOR_NOT_AVAILABLE, "this broker is stopping")
        name = f"{self.topic}-{index}"
        try:
            self._replicas.get(self.topic, index)  # which hastens its log
        except KafkaError as error:
            if error.code != Errors.NOT_LEADER_OR_FOLLOWER:
                return KafkaError(Errors.NOT_COORDINATOR, f"{name} is not led by this broker: {error.message}")
        return KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is about to be loaded")

    # --- coming and going

    def led(self, partition: Partition) -> None:
        """This broker leads the partition from now on: its shard begins to load."""
        machine = self._make_machine(partition.index)
        shard_log = CoordinatorLog(partition, self._clock, self._codec, self._base_sequence, self._acks)
        shard: Shard[M] = Shard(self.topic, partition.index, machine, shard_log, clock=self._clock, timer=self._timer)
        shard.leader_epoch = partition.leader_epoch
        machine.shard = shard
        with self._lock:
            before = self._shards.get(partition.index)
            self._shards = {**self._shards, partition.index: (partition, shard)}
        if before is not None:
            before[1].end()
        if partition.gone is not None or self._stopped:  # meanwhile: `lost` may have come before this
            self.lost(partition)
        elif partition.log.log_start_offset == partition.log.log_end_offset:
            load(shard, partition, self._replay, 0, self._is_stopped)
        else:
            self._queue.put(shard, partial(load, shard, partition, self._replay, self._block_bytes(), self._is_stopped))

    def lost(self, partition: Partition) -> None:
        """This broker does not lead the partition any more: its shard ends, soon, on another thread.

        Nothing is waited for here: a directory fails in the middle of an append, under the lock of whatever shard has
        made it, and others of its shards may wait for that one.
        """
        with self._lock:
            found = self._shards.get(partition.index)
            if found is None or found[0] is not partition:
                return
            self._shards = {index: one for index, one in self._shards.items() if index != partition.index}
        self._queue.put(found[1], found[1].end)
        self._queue.hasten(found[1])

    def stop(self) -> None:
        """Ends every shard: whoever waits is answered, and nobody appends any more."""
        self._stopped = True
        with self._lock:
            shards, self._shards = self._shards, {}
        for _, shard in shards.values():
            shard.end()

    def _is_stopped(self) -> bool:
        return self._stopped or self._queue.stopped
