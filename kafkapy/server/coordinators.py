"""The coordinators of a running broker: made with the first request or the first internal partition that needs them.

A broker without groups and transactions never imports them, which its start would pay for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.internal_topics import GROUPS, TRANSACTIONS
from kafkapy.server.internal_topics import InternalTopics

if TYPE_CHECKING:
    from kafkapy.coordinator.group_shard import GroupShard
    from kafkapy.coordinator.loading import LoadQueue
    from kafkapy.coordinator.shards import Shards
    from kafkapy.replica.partition import Partition
    from kafkapy.runtime.timer import Timer
    from kafkapy.server.services import Services

INTERNAL = (GROUPS, TRANSACTIONS)


class Coordinators:
    """Handlers reach the parts as `broker.groups`, `broker.offsets`, `broker.transactions` and `broker.markers`."""

    def __init__(self, services: Services, timer: Timer) -> None:
        self._services = services
        self._timer = timer
        self._making = threading.RLock()
        self._made: dict[str, Any] = {}
        self._stopped = False
        self.topics = InternalTopics(services)

    # --- parts

    @property
    def group_shards(self) -> Shards[GroupShard]:
        return self._part("group_shards", self._make_group_shards)  # type: ignore[no-any-return]

    def shards_of(self, topic: str) -> Shards[Any]:
        """The shards of one of the two topics."""
        return self.group_shards

    @property
    def _queue(self) -> LoadQueue:
        return self._part("queue", _make_queue)  # type: ignore[no-any-return]

    def _part(self, name: str, make: Callable[[], Any]) -> Any:
        made = self._made.get(name)
        if made is None:
            with self._making:
                made = self._made.get(name)
                if made is None:
                    made = self._made[name] = make()
        return made

    def _make_group_shards(self) -> Shards[GroupShard]:
        from kafkapy.coordinator.group_shard import GroupShard, base_sequence_of
        from kafkapy.coordinator.shards import Shards

        services = self._services
        return Shards(
            GROUPS,
            GroupShard,
            topics=services.topics,
            replicas=services.replicas,
            queue=self._queue,
            clock=services.clock,
            timer=self._timer,
            partitions=lambda: self.topics.partitions_of(GROUPS),
            block_bytes=lambda: int(services.config["offsets.load.buffer.size"]),
            codec=lambda: int(services.config["offsets.topic.compression.codec"]),
            base_sequence=base_sequence_of,
        )

    # --- partitions that are led, and lost; from whatever thread

    def led(self, partition: Partition) -> None:
        """This broker leads a partition, of whatever topic."""
        if partition.topic in INTERNAL:
            self.shards_of(partition.topic).led(partition)

    def lost(self, partition: Partition) -> None:
        """It leads it no more."""
        if partition.topic in INTERNAL:
            self.shards_of(partition.topic).lost(partition)

    def stop(self) -> None:
        """Answers whoever waits, and appends nothing any more. The network answers requests still."""
        with self._making:
            for name in ("group_shards", "transaction_shards"):
                shards = self._made.get(name)
                if shards is not None:
                    shards.stop()
            queue = self._made.get("queue")
        if queue is not None:
            queue.stop()


def _make_queue() -> LoadQueue:
    from kafkapy.coordinator.loading import LoadQueue

    return LoadQueue()
