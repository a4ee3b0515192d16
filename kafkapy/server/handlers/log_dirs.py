"""DescribeLogDirs (versions 0 to 4): the sizes of partitions, and the space in their directories (KIP-113, KIP-827).

Source: ReplicaManager.describeLogDirs.

Differences from Kafka:

- Replicas are not moved between directories, so no replica is described as a future one.
- A log that is still being loaded has the size 0. Kafka handles no requests before all logs are loaded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DESCRIBE_LOG_DIRS
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services


@serves(DESCRIBE_LOG_DIRS, pooled=True)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeLogDirs on the disk pool: return the log directories, with their free space and the sizes of their
    partitions."""
    make = DESCRIBE_LOG_DIRS.Response
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    )
    results = []
    for directory, error in broker.log_manager.directories():
        if error is not None:
            results.append(make.Results(error_code=Errors.KAFKA_STORAGE_ERROR, log_dir=str(directory), topics=[]))
            continue
        found = [
            (log.topic, log.partition, log.size, max(0, log.high_watermark - log.log_end_offset))
            for log in broker.log_manager.logs_in(directory)
        ]
        # A log that is being recovered is listed with size 0: recovery may still truncate it.
        found += [(*key, 0, 0) for key in broker.log_manager.loading.in_dir(directory)]
        by_topic: dict[str, list[Any]] = {}
        for topic, index, size, lag in found:
            if wanted is None or (topic, index) in wanted:
                by_topic.setdefault(topic, []).append(
                    make.Results.Topics.Partitions(
                        partition_index=index, partition_size=size, offset_lag=lag, is_future_key=False
                    )
                )
        total, usable = _room(directory)
        results.append(
            make.Results(
                log_dir=str(directory),
                topics=[
                    make.Results.Topics(name=name, partitions=partitions)
                    for name, partitions in sorted(by_topic.items())
                ],
                total_bytes=total,
                usable_bytes=usable,
            )
        )
    return make(results=results)


def _room(directory: Any) -> tuple[int, int]:
    """Return (total bytes, free bytes) of the directory's file system; (-1, -1) if the system call fails."""
    try:
        room = os.statvfs(directory)
    except OSError:
        return -1, -1
    return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
