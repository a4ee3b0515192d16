"""Chooses the thread pool for blocking reads: each disk has a pool, for the partitions on that disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkapy.errors import KafkaError
from kafkapy.replica.partition import Partition
from kafkapy.runtime.disk_pool import DiskPool

if TYPE_CHECKING:
    from kafkapy.server.services import Services


def pool_of(broker: Services, partition: Partition) -> DiskPool:
    """Return the pool of the disk that holds the partition."""
    return broker.read_pools.of_directory(os.path.dirname(partition.log.directory))


def pool_of_first(broker: Services, asked: Iterable[tuple[str, int]]) -> DiskPool:
    """Return the pool of the first of these partitions that is on this broker; the disk pool if none is."""
    for topic, index in asked:
        try:
            return pool_of(broker, broker.replicas.get(topic, index))
        except KafkaError:
            continue
    return broker.disk_pool
