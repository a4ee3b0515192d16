"""AlterReplicaLogDirs (versions 0 to 2) moves partitions between log directories (KIP-113). DescribeLogDirs (versions 0
to 4) shows the sizes of partitions, including those that are being moved, and the space in the directories (KIP-827).

Source: ReplicaManager.alterReplicaLogDirs and describeLogDirs.

Differences from Kafka:

- A log that is still being loaded has the size 0 and cannot be moved yet (REPLICA_NOT_AVAILABLE). Kafka handles no
  requests before all logs are loaded.
- Kafka also remembers the chosen directory for a partition that does not exist; here the partition gets an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from kafkapy.server.services import Services

_SHOWN = 10  # refused partitions of a request that are logged one by one

log = logging.getLogger("kafkapy.server.log_dirs")


@serves(ALTER_REPLICA_LOG_DIRS, pooled=True, checks=on_cluster("ALTER", CLUSTER_DENIED + " on each partition"))
def alter(broker: Services, call: Call, request: Any) -> Any:
    """Handle AlterReplicaLogDirs on the disk pool: begin to move each partition. Return an error code for each
    partition; the moves continue after the response."""
    make = ALTER_REPLICA_LOG_DIRS.Response
    by_topic: dict[str, list[Any]] = {}
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    refused = []
    for (topic, index), path in wanted.items():
        code = Errors.CLUSTER_AUTHORIZATION_FAILED if call.denied else Errors.NONE
        try:
            if not call.denied:
                broker.log_dir_moves.alter(topic, index, path)
        except KafkaError as error:
            code = error.code
            refused.append(f"{topic}-{index} does not move to {path}: {error.message}")
        by_topic.setdefault(topic, []).append(make.Results.Partitions(partition_index=index, error_code=code))
    for line in refused[:_SHOWN]:  # the response has no messages
        log.warning("%s", line)
    if len(refused) > _SHOWN:
        log.warning("and %d more partitions of this request do not move", len(refused) - _SHOWN)
    return make(
        results=[make.Results(topic_name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    )


@serves(
    DESCRIBE_LOG_DIRS,
    pooled=True,
    checks=on_cluster("DESCRIBE", CLUSTER_DENIED + "; before version 3 an empty list"),
)
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeLogDirs on the disk pool: return the log directories, with their free space and the sizes of their
    partitions."""
    make = DESCRIBE_LOG_DIRS.Response
    if call.denied:
        return make(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED, results=[])
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
        by_topic: dict[str, list[Any]] = {}
        for topic, index, size, lag, is_future in _found_in(broker, directory):
            if wanted is None or (topic, index) in wanted:
                by_topic.setdefault(topic, []).append(
                    make.Results.Topics.Partitions(
                        partition_index=index, partition_size=size, offset_lag=lag, is_future_key=is_future
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


def _found_in(broker: Services, directory: Path) -> Iterator[tuple[str, int, int, int, bool]]:
    """Yield (topic, partition, bytes, lag in offsets, whether it is a future log) of the logs in a directory.

    A log lags behind its high watermark, a future log behind the end of the log that it is copied from.
    """
    for one in broker.log_manager.logs_in(directory):
        current = broker.log_manager.get(one.topic, one.partition)
        if current is None or current is one:
            yield one.topic, one.partition, one.size, max(0, one.high_watermark - one.log_end_offset), False
        elif current.future is one:
            yield one.topic, one.partition, one.size, current.log_end_offset - one.log_end_offset, True
    # A log that is being recovered is listed with size 0: recovery may still truncate it.
    for topic, index in broker.log_manager.loading.in_dir(directory):
        yield topic, index, 0, 0, False


def _room(directory: Any) -> tuple[int, int]:
    """Return (total bytes, free bytes) of the directory's file system; (-1, -1) if the system call fails."""
    try:
        room = os.statvfs(directory)
    except OSError:
        return -1, -1
    return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
