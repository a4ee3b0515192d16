"""The task of a query, which reads one range of offsets in a Python worker of an executor.

Source: KafkaBatchPartitionReader and KafkaDataConsumer of Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kafkapy.arrow.partition_reader import read_partition
from kafkapy.client.cluster import BACKOFF_S, Cluster
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.errors import Errors, KafkaError, is_retriable
from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.options.source_options import SourceOptions
from kafkapy.spark.reading.cluster_pool import borrowed_cluster
from kafkapy.spark.reading.data_loss import report_data_loss
from kafkapy.spark.reading.ranges import KafkaRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition


VALID_S = 0.001  # how long a topic's metadata is used, multiplied by its number of partitions
_looked: WeakKeyDictionary[Cluster, dict[str, float]] = WeakKeyDictionary()  # when topics were looked up


@entry_point
def read_range(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of offsets as record batches.

    If a query has no ranges, Spark creates a partition that is not a KafkaRange: for it, nothing is yielded. If records
    of the range no longer exist, raises DataLoss, or with failOnDataLoss=false logs a warning and leaves them out.
    """
    if not isinstance(partition, KafkaRange):
        return
    consumer = options.consumer
    with borrowed_cluster(
        consumer.bootstrap_servers, options.client_id("executor"), consumer.request_timeout_s, consumer.security
    ) as cluster:
        position: int | None = partition.start
        if not _same_topic(cluster, partition, options):
            return
        denied, until = -1, 0.0
        while position is not None:
            try:
                yield from read_partition(
                    cluster,
                    partition.topic,
                    partition.partition,
                    position,
                    partition.end,
                    columns=options.columns,
                    isolation=consumer.isolation,
                    timeout_s=options.poll_timeout_s,
                )
                return
            except OffsetOutOfRange as error:
                if not error.earliest <= error.offset < error.latest:
                    position = _after_the_gap(error, partition, options)
                    continue
                # The offset exists: for a moment, replicas disagree while a new leader takes over.
                now = time.monotonic()
                if error.offset != denied:
                    denied, until = error.offset, now + options.poll_timeout_s
                elif now >= until:
                    raise
                position = error.offset
                time.sleep(BACKOFF_S)


def _after_the_gap(error: OffsetOutOfRange, one: KafkaRange, options: SourceOptions) -> int | None:
    """Return the offset where the task continues after deleted records, or None if no record of its range is left.

    Raises DataLoss, or with failOnDataLoss=false logs a warning. Neither happens if the query starts at the earliest
    offset and the task has read nothing yet.
    """
    if error.latest < 0:
        raise error
    lost_all = error.earliest >= one.end or error.offset >= error.latest
    if not (one.from_earliest and error.offset == one.start):
        what = f"offsets {error.offset} to {(one.end if lost_all else error.earliest) - 1}"
        report_data_loss(
            options.fail_on_data_loss,
            f"{one.topic}-{one.partition} does not have {what} any more; it has {error.earliest} to {error.latest - 1}",
        )
    return None if lost_all else error.earliest


def _topic_id(cluster: Cluster, name: str) -> str:
    """Return the id of a topic, in hex.

    Every task needs the id. A topic with thousands of partitions has as many tasks and large metadata responses, so
    each response is reused for a short time.
    """
    looked = _looked.setdefault(cluster, {})
    topic = cluster.topics.get(name)
    if topic is None or topic.error_code or time.monotonic() - looked.get(name, 0.0) > len(topic.partitions) * VALID_S:
        topic = cluster.topic(name, refresh=True)
        looked[name] = time.monotonic()
    return topic.topic_id.hex()


def _same_topic(cluster: Cluster, one: KafkaRange, options: SourceOptions) -> bool:
    """Return True if the topic still has the id that it had when the query was planned.

    Otherwise raise DataLoss, or with failOnDataLoss=false log a warning and return False.
    """
    deadline = time.monotonic() + options.poll_timeout_s
    attempts = 0
    while True:
        try:
            found = _topic_id(cluster, one.topic)
            break
        except (ConnectionFailed, KafkaError) as error:
            gone = isinstance(error, KafkaError) and error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
            attempts += gone  # a broker that has just started may not know the topic yet
            if attempts >= options.num_retries:
                report_data_loss(options.fail_on_data_loss, f"topic {one.topic!r} is gone")
                return False
            if (isinstance(error, KafkaError) and not is_retriable(error.code)) or time.monotonic() >= deadline:
                raise
            time.sleep(options.retry_interval_s if gone else BACKOFF_S)
    if one.topic_id and found != one.topic_id and any(bytes.fromhex(found)):
        report_data_loss(options.fail_on_data_loss, f"topic {one.topic!r} was deleted and recreated")
        return False
    return True
