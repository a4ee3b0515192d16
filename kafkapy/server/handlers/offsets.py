"""ListOffsets (versions 0 to 9): the earliest and the latest offset, or an offset by timestamp.

Version 0, of clients before Kafka 0.10.1, does not look at record timestamps: it returns base offsets of segments that
were last modified before a time. Source: KafkaApis.handleListOffsetRequest.

Differences from Kafka:

- For the largest timestamp (-3), Kafka looks at the whole log, and returns nothing if the record is not readable yet;
  here the largest timestamp among readable records is returned.
- There is no tiered storage, so the latest tiered offset is always -1.
- A partition that a request of version 0 names twice gets INVALID_REQUEST, as in later versions, because an entry of 16
  bytes can ask for many offsets (max_num_offsets). Kafka answers each entry.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.reading.time_lookup import EARLIEST, LATEST
from kafkapy.protocol.apis import LIST_OFFSETS
from kafkapy.replica.hosted_partition import HostedPartition, consumer_isolation
from kafkapy.replica.partition import Partition
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import TOPIC_DENIED, Check, Right
from kafkapy.server.fetching.read_pool import pool_of_first

if TYPE_CHECKING:
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.services import Services

MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EPOCHS_SINCE = 4
SINCE = {EARLIEST: 1, LATEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
CONSUMER = -1  # the replica id of a consumer; ids from 0 on are followers
DEBUGGER = -2  # a replica id of tools, which may also ask followers
NOT_AVAILABLE_SINCE = 5  # clients of earlier versions do not know OFFSET_NOT_AVAILABLE

Found = tuple[int, int, int]  # timestamp, offset, leader epoch; -1 if unknown
NOTHING: Found = (-1, -1, -1)


def _pool(broker: Services, request: Any) -> DiskPool:
    """Return the thread pool for a ListOffsets request. A lookup by timestamp reads files, so it runs on the pool of
    the disk with the partition. Other lookups run on the common disk pool and do not wait for a slow disk."""
    return pool_of_first(
        broker,
        (
            (topic.name, one.partition_index)
            for topic in request.topics
            for one in topic.partitions
            if one.timestamp >= 0 or one.timestamp == MAX_TIMESTAMP
        ),
    )


@serves(
    LIST_OFFSETS,
    pooled=_pool,
    checks=[
        Check(
            Right("DESCRIBE", "TOPIC"),
            TOPIC_DENIED + " for its partitions",
            lambda request: [topic.name for topic in request.topics],
        )
    ],
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle ListOffsets: return the offset of each partition, or its error, which is INVALID_REQUEST for a partition
    that is named twice. Denied topics come last."""
    make = LIST_OFFSETS.Response
    find_offsets = _find_segments if call.version == 0 else _find
    asked = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    denied = call.denied_names("TOPIC")
    topics, refused = [], []
    for topic in request.topics:
        if topic.name in denied:
            refused.append(_refused(topic))
            continue
        answers = []
        for one in topic.partitions:
            answer = make.Topics.Partitions(partition_index=one.partition_index, old_style_offsets=[])
            try:
                if asked[(topic.name, one.partition_index)] > 1:
                    raise KafkaError(Errors.INVALID_REQUEST, f"{topic.name}-{one.partition_index} is named twice")
                find_offsets(broker, call, request, topic.name, one, answer)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(make.Topics(name=topic.name, partitions=answers))
    return make(topics=topics + refused)


def _refused(topic: Any) -> Any:
    make = LIST_OFFSETS.Response.Topics
    code = Errors.TOPIC_AUTHORIZATION_FAILED
    return make(
        name=topic.name,
        partitions=[
            make.Partitions(partition_index=one.partition_index, error_code=code, old_style_offsets=[])
            for one in topic.partitions
        ],
    )


def _find(broker: Services, call: Call, request: Any, topic: str, one: Any, answer: Any) -> None:
    """Find the offset that a ListOffsets request asks for in one partition, and write it into `answer` with its
    timestamp and leader epoch. Raise KafkaError."""
    if one.timestamp < 0 and call.version < SINCE.get(one.timestamp, 1 << 15):
        raise KafkaError(Errors.UNSUPPORTED_VERSION, f"timestamp {one.timestamp} in v{call.version}")
    partition = _partition(broker, request, topic, one.partition_index, one.current_leader_epoch)
    isolation = consumer_isolation(request.isolation_level) if request.replica_id == CONSUMER else None
    try:
        answer.timestamp, answer.offset, leader_epoch = find(partition, one.timestamp, isolation)
    except KafkaError as error:
        if error.code == Errors.OFFSET_NOT_AVAILABLE and call.version < NOT_AVAILABLE_SINCE:
            raise KafkaError(Errors.LEADER_NOT_AVAILABLE, error.message) from error
        raise
    if call.version >= EPOCHS_SINCE:
        answer.leader_epoch = leader_epoch


def _partition(
    broker: Services, request: Any, topic: str, index: int, current_leader_epoch: int = -1
) -> HostedPartition:
    """Return the partition whose offsets the request asks for. Raise KafkaError if this broker does not have it, or is
    a follower and the request does not come from a tool."""
    if request.replica_id == DEBUGGER:
        hosted = broker.replicas.readable(topic, index)
        hosted.check_epoch(current_leader_epoch)
        return hosted
    return broker.replicas.require_leader(topic, index, current_leader_epoch)


def _find_segments(broker: Services, call: Call, request: Any, topic: str, one: Any, answer: Any) -> None:
    """Write the base offsets of segments that were last modified before a time into `answer`, for version 0
    (Partition.legacyFetchOffsetsForTimestamp). Raise KafkaError."""
    if one.timestamp < EARLIEST:
        raise KafkaError(Errors.UNSUPPORTED_VERSION, f"timestamp {one.timestamp} in v{call.version}")
    if one.max_num_offsets < 0:
        raise KafkaError(Errors.INVALID_REQUEST, f"{one.max_num_offsets} offsets of {topic}-{one.partition_index}")
    partition = _partition(broker, request, topic, one.partition_index)
    offsets = partition.log.offsets_before(one.timestamp, one.max_num_offsets)
    end = partition.log.high_watermark
    if request.replica_id == CONSUMER and any(offset > end for offset in offsets):
        offsets = [end, *(offset for offset in offsets if offset <= end)]
    answer.old_style_offsets = offsets


def find(partition: HostedPartition, timestamp: int, isolation: int | None) -> Found:
    """Return (timestamp, offset, leader epoch) of a partition's first record at or after `timestamp`, or for a special
    timestamp, such as LATEST. Unknown values are -1, all three if no record is found.

    `isolation` is a consumer's isolation level: offsets at or past its end offset (the high watermark or the last
    stable offset) are not returned. For a replica `isolation` is None, and the log end offset is the limit.

    Raises KafkaError OFFSET_NOT_AVAILABLE if a consumer asks for an end that a new leader does not know yet: its high
    watermark may be lower than what consumers got from the previous leader (KIP-207).
    """
    log = partition.log
    end = log.log_end_offset if isolation is None else partition.end_offset(isolation)
    if timestamp == LATEST:
        if isolation is not None:
            _check_known(partition)
        return (-1, end, partition.leader_epoch)
    if timestamp != EARLIEST and log.config.record_magic == 0:
        raise KafkaError(Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{log.name} has messages without timestamps")
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return (-1, start, log.leader_epochs.epoch_for_offset(start))
    if timestamp == LATEST_TIERED:
        return (-1, -1, -1)
    # Only records that the consumer may read count. Kafka takes the largest timestamp of the whole log, and returns
    # nothing if that record is at or past the high watermark, or in an open transaction.
    result = log.offset_of_max_timestamp(end) if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if result is None or result.offset >= end:
        if isolation is not None:
            _check_known(partition)
        return NOTHING
    return (result.timestamp, result.offset, result.leader_epoch)


def _check_known(partition: HostedPartition) -> None:
    """Raise KafkaError OFFSET_NOT_AVAILABLE while the high watermark is below the start of the leader epoch."""
    in_sync = partition.in_sync if isinstance(partition, Partition) else None
    if in_sync is not None and partition.log.high_watermark < in_sync.epoch_start:
        raise KafkaError(
            Errors.OFFSET_NOT_AVAILABLE,
            f"the high watermark of {partition} is {partition.log.high_watermark}, below the start of its leader epoch "
            f"at {in_sync.epoch_start}",
        )
