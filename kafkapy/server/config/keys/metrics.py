"""Broker settings: Apache Kafka's metrics, telemetry and client quotas."""

from __future__ import annotations

from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import Range
from kafkapy.server.config.keys.row import LOW, Row

ROWS: tuple[Row, ...] = (
    ("auto.include.jmx.reporter", T.BOOLEAN, True, None, LOW, "",
     "Deprecated: whether metrics go to JMX even if metric.reporters does not name JMX."),
    ("kafka.metrics.polling.interval.secs", T.INT, 10, Range(1), LOW, "",
     "Time between two polls by the older metrics reporters."),
    ("kafka.metrics.reporters", T.LIST, [], None, LOW, "", "Java classes of the older metrics reporters."),
    ("metric.reporters", T.LIST, [], None, LOW, "C", "Java classes that report metrics."),
    ("metrics.num.samples", T.INT, 2, Range(1), LOW, "", "Samples kept for a metric."),
    ("metrics.recording.level", T.STRING, "INFO", None, LOW, "", "Level of detail of the metrics."),
    ("metrics.sample.window.ms", T.LONG, 30000, Range(1), LOW, "", "Length of one sample of a metric."),
    ("telemetry.max.bytes", T.INT, 1048576, Range(1), LOW, "", "Largest batch of metrics that a client may push."),
    ("client.quota.callback.class", T.CLASS, None, None, LOW, "", "Java class that decides client quotas."),
    ("quota.window.num", T.INT, 11, Range(1), LOW, "E", "Samples kept for client quotas."),
    ("quota.window.size.seconds", T.INT, 1, Range(1), LOW, "E", "Length of one sample for client quotas."),
)  # fmt: skip
