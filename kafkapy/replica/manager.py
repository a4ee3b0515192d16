"""All partitions of this broker: finding one, making one, ending one. Source: kafka.server.ReplicaManager."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.purgatory import Purgatory
from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.replica.manager")

_UNKNOWN = KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION)


def _nothing(partition: Partition) -> None:
    """Nobody wants to know."""


class ReplicaManager:
    """Partitions by topic and index. Finding one takes no lock; making and ending them do."""

    def __init__(
        self,
        log_manager: LogManager,
        *,
        broker_id: int,
        timer: Timer,
        append_pool: DiskPool,
        conversion_pool: DiskPool | None = None,
        stall_threshold: float,
    ) -> None:
        self.log_manager = log_manager
        self.broker_id = broker_id
        self.fetch_purgatory = Purgatory("fetch", timer)
        self._append_pool = append_pool
        self._conversion_pool = conversion_pool
        self._stall_threshold = stall_threshold
        self._stalls: dict[str, StallMonitor] = {}
        self._lock = threading.Lock()
        self._topics: dict[str, dict[int, Partition]] = {}
        # Partitions of this broker that it does not lead, by topic: why not, None for those whose logs are loading.
        self._absent: dict[str, dict[int, KafkaError | None]] = {}
        self._verifies_transactions = False
        # Told of each partition that this broker begins to lead, and of its end; from whatever thread that happens on.
        self.on_led: Callable[[Partition], object] = _nothing
        self.on_lost: Callable[[Partition], object] = _nothing

    def get(self, topic: str, index: int, *, hasten: bool = True) -> Partition:
        """The partition, or KafkaError.

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER while its log is loading (which comes first then, unless
        the caller did not ask for this partition in particular), KAFKA_STORAGE_ERROR where it is offline, or whatever
        keeps its log from being served.
        """
        partition = self._find(topic, index)
        if partition is None:
            absent = self._absent.get(topic)
            reason = absent.get(index, _UNKNOWN) if absent is not None else _UNKNOWN
            if reason is None:
                if hasten:
                    self.log_manager.loading.hasten((topic, index))
                raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"the log of {topic}-{index} is being recovered")
            if reason is not _UNKNOWN:
                raise KafkaError(reason.code, reason.message)
            # It may have left the absent ones for those that are led, between the two looks.
            partition = self._find(topic, index)
            if partition is None:
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no partition {topic}-{index}")
        partition.check_there()
        return partition

    def _find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def expect(self, topic: str, indexes: Iterable[int]) -> None:
        """Partitions that this broker is going to lead, as soon as their logs are there. At the start, once a topic."""
        self._absent[topic] = dict.fromkeys(indexes)

    def refuse(self, topic: str, index: int, reason: KafkaError) -> None:
        """A partition cannot be led: `get` tells why from now on."""
        with self._lock:
            self._absent.setdefault(topic, {})[index] = reason

    def is_expected(self, topic: str, index: int) -> bool:
        """Whether the partition will be led as soon as its log is there."""
        return self._absent.get(topic, {}).get(index, _UNKNOWN) is None

    def holds(self, topic: str, index: int) -> bool:
        """Whether the partition is here and serves."""
        partition = self._find(topic, index)
        return partition is not None and partition.gone is None

    def led_epoch(self, topic: str, index: int) -> int | None:
        """The epoch in which this broker leads the partition; None if it does not."""
        partition = self._find(topic, index)
        return partition.leader_epoch if partition is not None and partition.gone is None else None

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    def make_leader(
        self, topic: str, index: int, topic_id: bytes, leader_epoch: int, config: LogConfig, *, is_new: bool
    ) -> Partition:
        """Makes this broker lead the partition; its log is made where there is none. Blocks on the disk; KafkaError.

        A partition that is not new and has no log may have it in a directory that is offline: then it is refused. So
        is one that is neither new nor expected: its topic was deleted meanwhile.
        """
        partition_log = self.log_manager.create(topic, index, topic_id, config, is_new=is_new)
        partition_log.assign_leader_epoch(leader_epoch)
        partition = Partition(
            partition_log,
            broker_id=self.broker_id,
            leader_epoch=leader_epoch,
            append_pool=self._append_pool,
            conversion_pool=self._conversion_pool,
            stall=self._stall_of(partition_log.env.log_dir),
            on_append=self.fetch_purgatory.check,
        )
        partition_log.set_high_watermark(partition_log.log_end_offset)
        with self._lock:
            partition_log.verifies_transactions = self._verifies_transactions
            absent = self._absent.get(topic, {})
            if not is_new and index not in absent:
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted")
            # In place: a copy would cost as much as there are topics, for each partition. A reader's look-up of a topic
            # or an index is one step, and who goes through all of them takes a list first, which is one step, too.
            self._topics.setdefault(topic, {})[index] = partition
            absent.pop(index, None)
        partition_log.tell()  # it may have been led in an epoch before
        self.on_led(partition)
        return partition

    def delete_topic(self, topic: str, indexes: Iterable[int]) -> list[str]:
        """Ends a deleted topic's partitions and hands their directories to the deletion. Blocks on the disk.

        Returns why for those whose logs could not be removed: their directories are offline, or they are being
        recovered, which ends soon.
        """
        with self._lock:
            partitions = self._topics.pop(topic, {})
            self._absent.pop(topic, None)
        gone = KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted")
        for partition in partitions.values():
            partition.remove(gone)
            self.on_lost(partition)
        left = []
        for index in indexes:
            try:
                self.log_manager.delete(topic, index)
            except KafkaError as error:
                left.append(error.message)
        return left

    def discard(self, topic: str, index: int, topic_id: bytes) -> None:
        """Deletes the log of a topic that is gone, if there is one. The caller lets nobody make a topic meanwhile."""
        partition_log = self.log_manager.get(topic, index)
        if partition_log is not None and partition_log.topic_id == topic_id:
            self.delete_topic(topic, [index])

    def config_of(self, topic: str, index: int) -> LogConfig | None:
        """The settings of a partition that is led; None for any other."""
        partition = self._find(topic, index)
        return partition.log.config if partition is not None else None

    def update_config(self, topic: str, config: LogConfig) -> None:
        """New settings of a topic, for every log of it."""
        for partition in list(self._topics.get(topic, {}).values()):
            partition.log.update_config(config)

    def verify_transactions(self, enabled: bool) -> None:
        """Whether a transaction may begin only where its coordinator was asked: see kafkapy.replica.verification."""
        with self._lock:
            self._verifies_transactions = enabled
            for partition in self:
                partition.log.verifies_transactions = enabled

    def directory_failed(self, directory: Path, error: BaseException) -> None:
        """A log directory went offline: its partitions answer KAFKA_STORAGE_ERROR from now on."""
        gone = KafkaError(Errors.KAFKA_STORAGE_ERROR, f"log directory {directory} is offline: {error}")
        lost = [partition for partition in self if partition.log.dir.parent == directory and partition.gone is None]
        for partition in lost:
            partition.remove(gone)
            self.on_lost(partition)
        log.error("log directory %s is offline (%s); partitions lost: %d", directory, error, len(lost))

    def end_long_work(self) -> None:
        """The broker stops and answers nobody any more: what is converted is not waited for."""
        refusal = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
        for partition in self:
            partition.ending = refusal

    def answer_waiting(self, sessions: Iterable[Hashable]) -> None:
        """Answers every fetch that waits with what there is: at a stop nobody waits for more."""
        for key in (*self, *sessions):
            self.fetch_purgatory.complete_all(key)

    def _stall_of(self, directory: str) -> StallMonitor:
        monitor = self._stalls.get(directory)
        if monitor is None:
            monitor = self._stalls[directory] = StallMonitor(self._stall_threshold)
        return monitor

    def stalls(self) -> dict[Path, Any]:
        """Stall monitors by log directory, for the metrics."""
        return {Path(directory): monitor for directory, monitor in self._stalls.items()}
