"""Broker settings: replicas, leaders, quotas on replication and the controller."""

from __future__ import annotations

from kafkapy.log.versions import LATEST, METADATA_VERSION_RULE
from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import Range, Rule
from kafkapy.server.config.keys.row import HIGH, LOW, MEDIUM, Row

# As kafkapy.replica.read_replica names them, which would be a slow import for tools.
_SELECTORS = [f"org.apache.kafka.common.replica.{name}" for name in ("LeaderSelector", "RackAwareReplicaSelector")]


def _selector_problem(value: str | None) -> str | None:
    return None if value is None or value in _SELECTORS else f"must be one of {', '.join(_SELECTORS)}"


SELECTOR = Rule(f"null or one of {', '.join(_SELECTORS)}", _selector_problem)

ROWS: tuple[Row, ...] = (
    ("replica.lag.time.max.ms", T.LONG, 30000, None, HIGH, "E",
     "How long a follower may lag before it leaves the in-sync replicas."),
    ("replica.fetch.min.bytes", T.INT, 1, None, HIGH, "E", "Bytes for which a follower's fetch waits."),
    ("replica.fetch.max.bytes", T.INT, 1048576, Range(0), MEDIUM, "E",
     "Most bytes of one partition in a follower's fetch."),
    ("replica.fetch.response.max.bytes", T.INT, 10485760, Range(0), MEDIUM, "E", "Most bytes in a follower's fetch."),
    ("replica.fetch.wait.max.ms", T.INT, 500, None, HIGH, "E", "Longest time that a follower's fetch waits."),
    ("replica.fetch.backoff.ms", T.INT, 1000, Range(0), MEDIUM, "E", "Wait of a follower after a failed fetch."),
    ("replica.socket.timeout.ms", T.INT, 30000, None, HIGH, "E", "Network timeout of a follower."),
    ("replica.socket.receive.buffer.bytes", T.INT, 65536, None, HIGH, "E",
     "SO_RCVBUF of a follower's connection; -1: the system's default."),
    ("replica.high.watermark.checkpoint.interval.ms", T.LONG, 5000, None, HIGH, "E",
     "Time between two writes of the high watermark file."),
    ("replica.selector.class", T.STRING, None, SELECTOR, MEDIUM, "E",
     "Kafka's name of the rule for the replica that a consumer reads from: the leader, or one in its rack."),
    ("num.replica.fetchers", T.INT, 1, None, HIGH, "EC", "Connections that fetch from one leader."),
    ("auto.leader.rebalance.enable", T.BOOLEAN, True, None, HIGH, "E",
     "Whether leadership returns to the preferred replicas automatically."),
    ("leader.imbalance.check.interval.seconds", T.LONG, 300, Range(1), HIGH, "E",
     "Time between two checks for imbalanced leadership."),
    ("leader.imbalance.per.broker.percentage", T.INT, 10, None, HIGH, "E",
     "Percentage of partitions whose leader may be another than the preferred replica."),
    ("unclean.leader.election.enable", T.BOOLEAN, False, None, HIGH, "EC",
     "Whether a replica that is not in sync may become leader, which may lose records."),
    ("unclean.leader.election.interval.ms", T.LONG, 300000, Range(1), MEDIUM, "I",
     "Time between two checks for partitions that need an unclean election."),
    ("controller.socket.timeout.ms", T.INT, 30000, None, MEDIUM, "E",
     "Network timeout between the controller and the brokers."),
    ("fetch.purgatory.purge.interval.requests", T.INT, 1000, None, MEDIUM, "",
     "Completed entries in the fetch purgatory at which they are purged."),
    ("producer.purgatory.purge.interval.requests", T.INT, 1000, None, MEDIUM, "",
     "Completed entries in the produce purgatory at which they are purged."),
    ("delete.records.purgatory.purge.interval.requests", T.INT, 1, None, MEDIUM, "",
     "Completed entries in the DeleteRecords purgatory at which they are purged."),
    ("inter.broker.protocol.version", T.STRING, LATEST, METADATA_VERSION_RULE, MEDIUM, "E",
     "Version of the protocol between brokers; below 3.0 the message format can be chosen."),
    ("replication.quota.window.num", T.INT, 11, Range(1), LOW, "E", "Samples kept for replication quotas."),
    ("replication.quota.window.size.seconds", T.INT, 1, Range(1), LOW, "E",
     "Length of one sample for replication quotas."),
    ("alter.log.dirs.replication.quota.window.num", T.INT, 11, Range(1), LOW, "E",
     "Samples kept for quotas on moves between log directories."),
    ("alter.log.dirs.replication.quota.window.size.seconds", T.INT, 1, Range(1), LOW, "E",
     "Length of one sample for quotas on moves between log directories."),
)  # fmt: skip
