"""Chooses the thread pool for reads that block: each disk has a pool, for the partitions on that disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkapy.errors import KafkaError
from kafkapy.replica.hosted_partition import HostedPartition
from kafkapy.runtime.disk_pool import DiskPool

if TYPE_CHECKING:
    from kafkapy.server.services import Services


def pool_of(broker: Services, partition: HostedPartition) -> DiskPool:
    """Return the thread pool for reads from the disk that holds the partition."""
    return broker.read_pools.of_directory(os.path.dirname(partition.log.directory))


def pool_of_first(broker: Services, asked: Iterable[tuple[str, int]]) -> DiskPool:
    """Return the read pool for the disk of the first partition in `asked` that is on this broker; the broker's disk
    pool if none is. `asked` has (topic, partition) pairs."""
    for topic, index in asked:
        try:
            return pool_of(broker, broker.replicas.get(topic, index))
        except KafkaError:
            continue
    return broker.disk_pool
