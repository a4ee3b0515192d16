"""The measurements, one per module. `ALL` has them in the order in which they run and are shown, important ones first.

Packages of the extra `perf` are imported in the functions that use them, so that --help and the measurements that only
need a broker work without them.
"""

from __future__ import annotations

from perf.measurement import Measurement
from perf.measurements.acls import Acls
from perf.measurements.codecs import Codecs
from perf.measurements.cold_readers import ColdReaders
from perf.measurements.columns import Columns
from perf.measurements.commits import Commits
from perf.measurements.compaction import Compaction
from perf.measurements.connections import Connections
from perf.measurements.consume import Consume
from perf.measurements.controller_failover import ControllerFailover
from perf.measurements.controller_leaders import ControllerLeaders
from perf.measurements.controller_reassign import ControllerReassign
from perf.measurements.controller_small import ControllerSmall
from perf.measurements.controller_topics import ControllerTopics
from perf.measurements.fetch_sessions import FetchSessions
from perf.measurements.group_commit import GroupCommit
from perf.measurements.java import Java
from perf.measurements.kafka_07 import Kafka07
from perf.measurements.latency import Latency
from perf.measurements.librdkafka import Librdkafka
from perf.measurements.log_tools import LogTools
from perf.measurements.memory import Memory
from perf.measurements.mirror import Mirror
from perf.measurements.offsets_load import OffsetsLoad
from perf.measurements.original_consumer import OriginalConsumer
from perf.measurements.original_producer import OriginalProducer
from perf.measurements.partitions import Partitions
from perf.measurements.produce import Produce
from perf.measurements.quotas import Quotas
from perf.measurements.rebalance import Rebalance
from perf.measurements.rebalance_zookeeper import RebalanceZooKeeper
from perf.measurements.recovery import Recovery
from perf.measurements.recovery_beside import RecoveryBeside
from perf.measurements.recovery_many import RecoveryMany
from perf.measurements.replication_beside import ReplicationBeside
from perf.measurements.replication_catch_up import ReplicationCatchUp
from perf.measurements.replication_idle import ReplicationIdle
from perf.measurements.replication_latency import ReplicationLatency
from perf.measurements.replication_produce import ReplicationProduce
from perf.measurements.requests import Requests
from perf.measurements.segments import Segments
from perf.measurements.small_requests import SmallRequests
from perf.measurements.spark_flights import SparkFlights
from perf.measurements.spark_log import SparkLog
from perf.measurements.spark_read import SparkRead
from perf.measurements.spark_sink import SparkSink
from perf.measurements.spark_stream import SparkStream
from perf.measurements.start import Start
from perf.measurements.threads import Threads
from perf.measurements.tls import Tls
from perf.measurements.tls_clients import TlsClients
from perf.measurements.tls_requests import TlsRequests
from perf.measurements.topics import Topics
from perf.measurements.transactions import Transactions
from perf.measurements.two_namespaces import TwoNamespaces
from perf.measurements.zero_copy import ZeroCopy

ALL: tuple[Measurement, ...] = (
    Produce(),
    Librdkafka(),
    Codecs(),
    Consume(),
    Requests(),
    Latency(),
    ColdReaders(),
    Start(),
    Memory(),
    Recovery(),
    ZeroCopy(),
    TwoNamespaces(),
    SmallRequests(),
    Tls(),
    TlsRequests(),
    TlsClients(),
    Acls(),
    Java(),
    Threads(),
    Quotas(),
    GroupCommit(),
    RecoveryBeside(),
    RecoveryMany(),
    Transactions(),
    Commits(),
    OffsetsLoad(),
    Rebalance(),
    Connections(),
    Segments(),
    FetchSessions(),
    Partitions(),
    Topics(),
    Compaction(),
    LogTools(),
    Columns(),
    Mirror(),
    SparkRead(),
    SparkSink(),
    SparkLog(),
    SparkFlights(),
    SparkStream(),
    OriginalProducer(),
    OriginalConsumer(),
    RebalanceZooKeeper(),
    Kafka07(),
    ReplicationProduce(),
    ReplicationLatency(),
    ReplicationCatchUp(),
    ReplicationBeside(),
    ReplicationIdle(),
    ControllerLeaders(),
    ControllerFailover(),
    ControllerTopics(),
    ControllerReassign(),
    ControllerSmall(),
)
