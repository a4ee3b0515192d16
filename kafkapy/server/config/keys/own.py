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
     "Whether fetched records go from file to socket by sendfile; false reads and copies them."),
    ("kafkapy.metrics.listen", T.STRING, "", HOST_AND_PORT, MEDIUM, "E",
     "Where metrics are served over HTTP in Prometheus form; empty serves none."),
    ("kafkapy.disk.pool.threads", T.INT, 4, Range(1, 256), MEDIUM, "E",
     "Threads for what may wait for a disk and is no consumer's read: new topics, deletion, administration."),
    ("kafkapy.read.threads.per.disk", T.INT, 4, Range(1, 256), MEDIUM, "E",
     "Threads that read for consumers what is not in memory, for each device that log directories are on."),
    ("kafkapy.read.ahead.bytes", T.LONG, 2 * 1024**2, Range(0), MEDIUM, "E",
     "How far a consumer that reads from disk in order is read ahead of; below 1 MiB nothing is read ahead."),
    ("kafkapy.read.ahead.max.bytes", T.LONG, 64 * 1024**2, Range(0), MEDIUM, "E",
     "How much is read ahead of all such consumers together; each has an equal share of it."),
    ("kafkapy.append.pool.threads", T.INT, 16, Range(1, 256), MEDIUM, "E",
     "Threads for appends that wait for a disk: as many partitions can have an fsync under way for acknowledgements."),
    ("kafkapy.stall.threshold.ms", T.DOUBLE, 1.0, Range(0), LOW, "E",
     "A write that takes longer moves a log directory's appends off the network threads until it recovers."),
    ("kafkapy.decompressed.max.bytes", T.LONG, 128 * 1024**2, Range(1), MEDIUM, "E",
     "Largest size of a compressed batch once decompressed; a batch beyond it is refused."),
    ("kafkapy.log.max.open.files", T.INT, 0, Range(0), MEDIUM, "E",
     "Files of logs that are kept open, those last used; 0: half as many as the process may open (RLIMIT_NOFILE)."),
    ("kafkapy.retention.policy", T.STRING, "", CLASS_NAME, LOW, "E",
     "MODULE:CLASS of a policy that says which segments are deleted (kafkapy.log.retention); empty is Kafka's."),
    ("kafkapy.zookeeper.sasl.username", T.STRING, "", None, MEDIUM, "E",
     "Who we are to ZooKeeper (SASL, DIGEST-MD5; its DigestLoginModule); empty for nobody in particular."),
    ("kafkapy.zookeeper.sasl.password", T.PASSWORD, None, None, MEDIUM, "E", "The password that goes with it."),
    ("kafkapy.log.level", T.STRING, "INFO", OneOf("DEBUG", "INFO", "WARNING", "ERROR", any_case=True), LOW, "E",
     "Least severe messages that are logged; `kafka-configs --entity-type broker-loggers` changes the levels of a "
     "running broker."),
)  # fmt: skip
