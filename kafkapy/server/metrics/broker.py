"""The metrics of a broker's parts: waiting fetches, pools, fetch sessions, topics and logs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafkapy.runtime.counters import Labels, Metric, metric_table
from kafkapy.server.metrics import cleaner, coordinators

if TYPE_CHECKING:
    from kafkapy.server.services import Services

_REPLICAS = "kafka.server:type=ReplicaManager"
_LOG, _LOG_MANAGER = "kafka.log:type=Log", "kafka.log:type=LogManager"

METRICS = metric_table(
    Metric("fetch_purgatory_size", "gauge", (), "Fetches that wait for data.",
           "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,delayedOperation=Fetch"),
    Metric("conversion_pool_depth", "gauge", (),
           "Appends whose message format is being converted, or that wait for the conversion."),
    Metric("append_pool_depth", "gauge", (), "Appends that run on the append pool or wait for one of its threads."),
    Metric("disk_pool_depth", "gauge", (), "Calls that run on the disk pool or wait for one of its threads."),
    Metric("read_pools_depth", "gauge", (),
           "Reads from disk for consumers that run on the read pools or wait for one of their threads."),
    Metric("fetch_sessions", "gauge", (), "Incremental fetch sessions.",
           "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions"),
    Metric("fetch_session_evictions", "counter", (), "Fetch sessions that were removed to make room for others.",
           "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec"),
    Metric("under_replicated_partitions", "gauge", (),
           "Partitions that this broker leads and that have fewer in-sync replicas than replicas.",
           f"{_REPLICAS},name=UnderReplicatedPartitions"),
    Metric("under_min_isr_partitions", "gauge", (),
           "Partitions that this broker leads and that have fewer in-sync replicas than min.insync.replicas.",
           f"{_REPLICAS},name=UnderMinIsrPartitionCount"),
    Metric("at_min_isr_partitions", "gauge", (),
           "Partitions that this broker leads and that have as many in-sync replicas as min.insync.replicas.",
           f"{_REPLICAS},name=AtMinIsrPartitionCount"),
    Metric("partition_under_replicated", "gauge", ("topic", "partition"),
           "1 if a partition that this broker leads has fewer in-sync replicas than replicas, else 0.",
           "kafka.cluster:type=Partition,name=UnderReplicated"),
    Metric("isr_shrinks", "counter", (), "Changes that removed replicas from an ISR.",
           f"{_REPLICAS},name=IsrShrinksPerSec"),
    Metric("isr_expansions", "counter", (), "Changes that added a replica to an ISR.",
           f"{_REPLICAS},name=IsrExpandsPerSec"),
    Metric("failed_isr_updates", "counter", (), "Changes of an ISR that the controller refused.",
           f"{_REPLICAS},name=FailedIsrUpdatesPerSec"),
    Metric("deletion_purgatory_size", "gauge", (), "DeleteRecords requests that wait for followers.",
           "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,delayedOperation=DeleteRecords"),
    Metric("replication_bytes_out", "counter", (), "Bytes of record batches that followers have fetched.",
           "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec"),
    Metric("replication_bytes_in", "counter", (), "Bytes that this broker has appended as follower.",
           "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec"),
    Metric("replica_fetcher_max_lag", "gauge", (),
           "Records by which the slowest partition that this broker follows is behind its leader.",
           "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica"),
    Metric("replica_fetcher_failed_partitions", "gauge", (),
           "Partitions that this broker follows but does not fetch until their next leader epoch.",
           "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount,clientId=Replica"),
    Metric("topics", "gauge", (), "Topics.", "kafka.controller:type=KafkaController,name=GlobalTopicCount"),
    Metric("offline_log_directories", "gauge", (), "Log directories that failed.",
           f"{_LOG_MANAGER},name=OfflineLogDirectoryCount"),
    Metric("log_dir_moves", "gauge", (), "Partitions that are being moved to another log directory, or wait for that."),
    Metric("log_dir_moves_max_lag", "gauge", (),
           "Largest number of records that are still to be copied, of the partitions that are being moved.",
           "kafka.server:type=ReplicaAlterLogDirsManager,name=MaxLag,clientId=ReplicaAlterLogDirs"),
    Metric("replication_byte_rate", "gauge", ("throttle",),
           "Bytes per second of the partitions to which a throttle applies: leader, follower or log_dirs.",
           "kafka.server:type={LeaderReplication,FollowerReplication,AlterLogDirsReplication},name=byte-rate"),
    Metric("log_open_files", "gauge", (), "Files of logs that are kept open."),
    Metric("append_stalls", "counter", (), "Writes that took longer than kafkapy.stall.threshold.ms."),
    Metric("remaining_logs_to_recover", "gauge", ("dir",), "Logs of a directory that are not loaded yet.",
           f"{_LOG_MANAGER},name=remainingLogsToRecover"),
    Metric("remaining_bytes_to_recover", "gauge", ("dir",),
           "Bytes of a directory's segments that recovery still has to check."),
    Metric("remaining_segments_to_recover", "gauge", ("dir", "thread_num"),
           "Segments that recovery still has to check in the log that this thread is loading.",
           f"{_LOG_MANAGER},name=remainingSegmentsToRecover"),
    Metric("log_size_bytes", "gauge", ("topic", "partition"), "Size of a partition's segments.", f"{_LOG},name=Size"),
    Metric("log_start_offset", "gauge", ("topic", "partition"), "First offset of a partition.",
           f"{_LOG},name=LogStartOffset"),
    Metric("log_end_offset", "gauge", ("topic", "partition"), "Offset that the next record of a partition will have.",
           f"{_LOG},name=LogEndOffset"),
)  # fmt: skip


def register(services: Services) -> None:
    """Register the metrics of the broker, the cleaner and the coordinators. All parts of the broker must exist."""
    counters, logs = services.counters, services.log_manager
    for name, read in {
        "fetch_purgatory_size": lambda: services.replicas.fetch_purgatory.delayed,
        "conversion_pool_depth": lambda: services.conversion_pool.depth,
        "append_pool_depth": lambda: services.append_pool.depth,
        "disk_pool_depth": lambda: services.disk_pool.depth,
        "read_pools_depth": lambda: services.read_pools.depth,
        "fetch_sessions": lambda: len(services.fetch_sessions),
        "fetch_session_evictions": lambda: services.fetch_sessions.evictions,
        "isr_shrinks": lambda: services.replicas.isr_env.shrinks.value,
        "isr_expansions": lambda: services.replicas.isr_env.expansions.value,
        "failed_isr_updates": lambda: services.replicas.isr_env.failures.value,
        "deletion_purgatory_size": lambda: services.replicas.deletion_purgatory.delayed,
        "replication_bytes_out": lambda: services.meters.replication_bytes_out.value,
        "replication_bytes_in": lambda: services.following.bytes_in,
        "replica_fetcher_max_lag": lambda: services.following.max_lag,
        "replica_fetcher_failed_partitions": lambda: services.following.failed,
        "topics": lambda: len(services.cache),
        "offline_log_directories": lambda: sum(error is not None for _, error in logs.directories()),
        "log_open_files": lambda: logs.open_files,
        "log_dir_moves": lambda: len(services.log_dir_moves.moving()),
        "log_dir_moves_max_lag": services.log_dir_moves.max_lag,
        "append_stalls": lambda: sum(monitor.stalls for monitor in services.replicas.stalls().values()),
    }.items():
        counters.register(METRICS[name], read)
    throttles = services.throttles
    for name, throttle in (
        ("leader", throttles.leader),
        ("follower", throttles.follower),
        ("log_dirs", throttles.log_dirs),
    ):
        counters.register(METRICS["replication_byte_rate"], throttle.rate, name)
    sizes = [METRICS["log_size_bytes"], METRICS["log_start_offset"], METRICS["log_end_offset"]]
    counters.register_reader(sizes, partial(_logs, services))
    counts = [METRICS[f"{name}_partitions"] for name in ("under_replicated", "under_min_isr", "at_min_isr")]
    counters.register_reader([*counts, METRICS["partition_under_replicated"]], partial(_in_sync, services))
    _register_loading(services)
    cleaner.register(logs, counters)
    coordinators.register(services.coordinators, counters)


def _register_loading(services: Services) -> None:
    """Register the metrics for the progress of loading the logs (KIP-831). All their values are 0 when the logs are
    loaded."""
    counters = services.counters
    for directory, progress in services.log_manager.loading.progress().items():
        counters.register(METRICS["remaining_logs_to_recover"], partial(getattr, progress, "logs_left"), directory)
        counters.register(METRICS["remaining_bytes_to_recover"], partial(getattr, progress, "bytes_left"), directory)
        for number in range(len(progress.segments_left)):
            counters.register(
                METRICS["remaining_segments_to_recover"],
                partial(progress.segments_left.__getitem__, number),
                directory,
                str(number),
            )


def _logs(services: Services) -> Iterator[tuple[Metric, Labels, float]]:
    for partition in (*services.replicas, *services.replicas.all_followed()):
        labels = (partition.topic, str(partition.index))
        yield METRICS["log_size_bytes"], labels, partition.log.size
        yield METRICS["log_start_offset"], labels, partition.log.log_start_offset
        yield METRICS["log_end_offset"], labels, partition.log.log_end_offset


def _in_sync(services: Services) -> Iterator[tuple[Metric, Labels, float]]:
    under_replicated = under_min = at_min = 0
    for partition in services.replicas:
        in_sync = partition.in_sync
        size, replicas, least = (
            (1, 1, 1) if in_sync is None else (len(in_sync.state.isr), len(in_sync.replicas), in_sync.min_isr)
        )
        under_replicated += size < replicas
        under_min += size < least
        at_min += size == least
        labels = (partition.topic, str(partition.index))
        yield METRICS["partition_under_replicated"], labels, int(size < replicas)
    yield METRICS["under_replicated_partitions"], (), under_replicated
    yield METRICS["under_min_isr_partitions"], (), under_min
    yield METRICS["at_min_isr_partitions"], (), at_min
