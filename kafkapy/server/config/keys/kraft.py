"""Broker settings: KRaft, which this broker does not support."""

from __future__ import annotations

from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import OneOf, Range
from kafkapy.server.config.keys.row import HIGH, LOW, MEDIUM, QUORUM_SERVERS, QUORUM_VOTERS, Row

ROWS: tuple[Row, ...] = (
    ("process.roles", T.LIST, [], OneOf("broker", "controller"), HIGH, "",
     "Roles of the process in KRaft; must contain broker, and the part of a controller is ignored."),
    ("controller.listener.names", T.STRING, None, None, HIGH, "E",
     "Listeners of the KRaft controller; this broker does not open them."),
    ("controller.quorum.voters", T.LIST, [], QUORUM_VOTERS, HIGH, "", "Voters of the metadata quorum."),
    ("controller.quorum.bootstrap.servers", T.LIST, [], QUORUM_SERVERS, HIGH, "",
     "Addresses for finding the metadata quorum."),
    ("controller.quorum.append.linger.ms", T.INT, 25, None, MEDIUM, "",
     "How long writes are collected for one append to the metadata log."),
    ("controller.quorum.election.backoff.max.ms", T.INT, 1000, None, HIGH, "", "Longest wait before a new election."),
    ("controller.quorum.election.timeout.ms", T.INT, 1000, None, HIGH, "", "Silence after which an election begins."),
    ("controller.quorum.fetch.timeout.ms", T.INT, 2000, None, HIGH, "",
     "Longest time without a fetch from the quorum leader."),
    ("controller.quorum.request.timeout.ms", T.INT, 2000, None, MEDIUM, "",
     "Longest wait for a response from the quorum."),
    ("controller.quorum.retry.backoff.ms", T.INT, 20, None, LOW, "",
     "Wait before a request to the quorum is repeated."),
    ("controller.quota.window.num", T.INT, 11, Range(1), LOW, "E", "Samples kept for quotas on topic changes."),
    ("controller.quota.window.size.seconds", T.INT, 1, Range(1), LOW, "E",
     "Length of one sample for quotas on topic changes."),
    ("broker.heartbeat.interval.ms", T.INT, 2000, None, MEDIUM, "", "Time between two heartbeats to the controller."),
    ("broker.session.timeout.ms", T.INT, 9000, None, MEDIUM, "",
     "Time without a heartbeat after which the controller fences this broker."),
    ("initial.broker.registration.timeout.ms", T.INT, 60000, None, MEDIUM, "",
     "Wait for the first registration with the controller."),
    ("metadata.log.dir", T.STRING, None, None, HIGH, "", "Directory of the metadata log."),
    ("metadata.log.max.record.bytes.between.snapshots", T.LONG, 20971520, Range(1), HIGH, "",
     "Bytes of metadata log between two snapshots."),
    ("metadata.log.max.snapshot.interval.ms", T.LONG, 3600000, Range(0), HIGH, "",
     "Longest time between two snapshots of metadata."),
    ("metadata.log.segment.bytes", T.INT, 1073741824, Range(12), HIGH, "", "Segment size of the metadata log."),
    ("metadata.log.segment.min.bytes", T.INT, 8388608, Range(12), HIGH, "I",
     "Smallest segment size of the metadata log."),
    ("metadata.log.segment.ms", T.LONG, 604800000, None, HIGH, "", "Age of a segment at which the metadata log rolls."),
    ("metadata.max.idle.interval.ms", T.INT, 500, Range(0), LOW, "",
     "Time between two no-op records of an idle controller."),
    ("metadata.max.retention.bytes", T.LONG, 104857600, None, HIGH, "", "Size above which old metadata is deleted."),
    ("metadata.max.retention.ms", T.LONG, 604800000, None, HIGH, "", "Age above which old metadata is deleted."),
)  # fmt: skip
