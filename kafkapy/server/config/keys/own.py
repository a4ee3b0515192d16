"""Broker settings: kafkapy's own."""

from __future__ import annotations

from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import OneOf, Range, Rule
from kafkapy.server.config.keys.row import LOW, MEDIUM, Row


def _listen_problem(value: str) -> str | None:
    if not value:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return "must be HOST:PORT, such as 127.0.0.1:9404 or [::1]:9404, or empty"
    return None


HOST_AND_PORT = Rule("HOST:PORT or empty", _listen_problem)


def _class_problem(value: str) -> str | None:
    module, colon, name = value.partition(":")
    if not value or (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        return None
    return "must be MODULE:CLASS, such as mypackage.retention:KeepMondays, or empty"


CLASS_NAME = Rule("MODULE:CLASS or empty", _class_problem)

ROWS: tuple[Row, ...] = (
    ("kafkapy.zero.copy.enable", T.BOOLEAN, True, None, MEDIUM, "E",
     "Whether fetched records are sent with sendfile; if not, they are read into memory and sent from there."),
    ("kafkapy.ktls.enable", T.BOOLEAN, False, None, MEDIUM, "E",
     "Whether the kernel, if it can, encrypts responses on TLS 1.3 connections, so that sendfile is used."),
    ("kafkapy.authentication.timeout.ms", T.INT, 30000, Range(1), MEDIUM, "E",
     "Time for the TLS handshake and the SASL login of a new connection together."),
    ("kafkapy.max.connections.authenticating", T.INT, 2000, Range(1), MEDIUM, "E",
     "Most connections that have not authenticated yet; of more, the oldest is closed."),
    ("kafkapy.authorizer.timeout.ms", T.INT, 5000, Range(1), MEDIUM, "E",
     "Longest time that an authorizer in Python may take to answer; then what was asked is denied."),
    ("kafkapy.metrics.listen", T.STRING, "", HOST_AND_PORT, MEDIUM, "E",
     "HOST:PORT on which metrics are served over HTTP in Prometheus format; empty: nowhere."),
    ("kafkapy.audit.file", T.STRING, "", None, MEDIUM, "E",
     "File for the audit log: what was denied, and changes of ACLs, users, quotas and settings; empty: where the other "
     "log lines go."),
    ("kafkapy.audit.format", T.STRING, "text", OneOf("text", "json"), LOW, "E",
     "Format of the lines in kafkapy.audit.file."),
    ("kafkapy.audit.level", T.STRING, "INFO", OneOf("INFO", "DEBUG", "TRACE"), LOW, "E",
     "What the audit log has: denied operations (INFO), allowed ones too (DEBUG), checks that fill lists too (TRACE)."),
    ("kafkapy.audit.file.max.bytes", T.LONG, 100 * 1024**2, Range(0), LOW, "E",
     "Size from which kafkapy.audit.file is renamed and begun again; 0: never, for example for logrotate."),
    ("kafkapy.audit.file.count", T.INT, 10, Range(0), LOW, "E",
     "Renamed files of kafkapy.audit.file that are kept."),
    ("kafkapy.audit.repeat.seconds", T.INT, 10, Range(0), LOW, "E",
     "A denial that is repeated within this time is counted, and logged with its number afterwards; 0: always logged."),
    ("kafkapy.max.groups", T.INT, 100_000, Range(1), LOW, "E",
     "Most groups on this broker; a new one is then refused with POLICY_VIOLATION."),
    ("kafkapy.max.transactional.ids", T.INT, 100_000, Range(1), LOW, "E",
     "Most transactional ids on this broker; a new one is then refused with POLICY_VIOLATION."),
    ("kafkapy.max.producer.ids", T.INT, 100_000, Range(1), LOW, "E",
     "Most producer ids that a partition remembers; of more, it forgets those that have not written for longest."),
    ("kafkapy.slow.request.ms", T.INT, 1000, Range(0), LOW, "E",
     "Requests that take longer are logged and counted, except for their waiting for records or members; 0: none."),
    ("kafkapy.disk.pool.threads", T.INT, 4, Range(1, 256), MEDIUM, "E",
     "Threads for disk work other than appends and consumers' reads: creating and deleting topics, administration."),
    ("kafkapy.read.threads.per.disk", T.INT, 4, Range(1, 256), MEDIUM, "E",
     "Threads per device with log directories that read data for consumers if it is not in memory."),
    ("kafkapy.read.ahead.bytes", T.LONG, 2 * 1024**2, Range(0), MEDIUM, "E",
     "How far the broker reads ahead of a consumer that reads sequentially from disk; below 1 MiB: no read-ahead."),
    ("kafkapy.read.ahead.max.bytes", T.LONG, 64 * 1024**2, Range(0), MEDIUM, "E",
     "Most bytes read ahead for all such consumers, in equal shares; as many more stay for consumers close behind "
     "others."),
    ("kafkapy.drop.behind.enable", T.BOOLEAN, True, None, MEDIUM, "E",
     "Whether records that were read from disk for a consumer leave the page cache when it has passed them."),
    ("kafkapy.append.pool.threads", T.INT, 16, Range(1, 256), MEDIUM, "E",
     "Threads for appends that wait for a disk, and so the most partitions that wait for an fsync at the same time."),
    ("kafkapy.stall.threshold.ms", T.DOUBLE, 1.0, Range(0), LOW, "E",
     "If two writes within 50 ms take longer (plus 20 ns a byte), appends leave the network threads until the disk "
     "recovers."),
    ("kafkapy.decompressed.max.bytes", T.LONG, 128 * 1024**2, Range(1), MEDIUM, "E",
     "Largest decompressed size of a compressed batch; a larger batch is refused."),
    ("kafkapy.log.max.open.files", T.INT, 0, Range(0), MEDIUM, "E",
     "Most log files kept open, the last used ones; 0: half of what the process may open (RLIMIT_NOFILE)."),
    ("kafkapy.retention.policy", T.STRING, "", CLASS_NAME, LOW, "E",
     "MODULE:CLASS of a policy that chooses the segments to delete (kafkapy.log.retention); empty: Kafka's."),
    ("kafkapy.kafka07.properties", T.STRING, "", None, MEDIUM, "E",
     "A server.properties of Kafka 0.7, whose listener, logs and registry this broker serves as well (kafka-0.7.md); "
     "empty: none."),
    ("kafkapy.zookeeper.sasl.username", T.STRING, "", None, MEDIUM, "E",
     "User name for ZooKeeper (SASL DIGEST-MD5, ZooKeeper's DigestLoginModule); empty: no authentication."),
    ("kafkapy.zookeeper.sasl.password", T.PASSWORD, None, None, MEDIUM, "E",
     "Password of kafkapy.zookeeper.sasl.username."),
    ("kafkapy.oauthbearer.unsecured.tokens.enable", T.BOOLEAN, False, None, LOW, "E",
     "Whether OAUTHBEARER listeners accept tokens without a signature, which anybody can make; for development only."),
    ("kafkapy.log.level", T.STRING, "INFO", OneOf("DEBUG", "INFO", "WARNING", "ERROR", any_case=True), LOW, "E",
     "Least severe messages that are logged; `kafka-configs --entity-type broker-loggers` changes the levels of a "
     "running broker."),
)  # fmt: skip
