"""Writes the documentation page of all metrics: `python -m kafkapy.tools.metrics_docs > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.mirror import metrics as mirror
from kafkapy.network import metrics as network
from kafkapy.runtime.counters import Metric
from kafkapy.runtime.metrics_page import PREFIX
from kafkapy.server.authorization import audit_log
from kafkapy.server.metrics import (
    broker,
    cleaner,
    controller,
    coordinators,
    kafka_07,
    logins,
    quotas,
    requests,
    slow_requests,
    tls,
)

# The tables by the heading of their section: those of a broker's page, and the one of a mirror's page.
BROKER_TABLES = {
    "Requests": requests.METRICS | slow_requests.METRICS | audit_log.METRICS,
    "Network": network.METRICS,
    "Logs, topics, fetches and pools": broker.METRICS,
    "TLS": tls.METRICS,
    "Quotas": quotas.METRICS,
    "Sessions of SASL clients": logins.METRICS,
    "Controller": controller.METRICS,
    "Log cleaner": cleaner.METRICS,
    "Groups and transactions": coordinators.METRICS,
    "Topics of Kafka 0.7": kafka_07.METRICS,
}
MIRROR_TABLE = mirror.METRICS

_INTRODUCTION = """# Metrics

This page is written by `python -m kafkapy.tools.metrics_docs` from the tables that define the metrics.

A broker serves its metrics over HTTP in Prometheus format with `kafkapy.metrics.listen=HOST:PORT` in
`server.properties`, a mirror with `kafkapy mirror --metrics HOST:PORT`.

Names are those that Prometheus shows. Durations are in seconds unless the name says otherwise. A counter begins at 0
when the process starts. A metric with labels is on the page once it has a value: `kafkapy_topic_bytes_in_total` of a
topic after the first produce request. "In Apache Kafka" is the JMX name of Kafka's metric for the same, where there is
one; tags such as the topic are left out. The unit can differ: Kafka often shows a rate, or uses milliseconds.

A metric is added as [add-a-metric.md](add-a-metric.md) says.
"""


def page() -> str:
    """Return the documentation page of all metrics, in Markdown."""
    parts = [_INTRODUCTION]
    parts += [f"## {title}\n\n" + _table(metrics.values()) for title, metrics in BROKER_TABLES.items()]
    parts.append("## Mirror\n\n" + _table(MIRROR_TABLE.values()))
    return "\n".join(parts)


def exposed_name(metric: Metric) -> str:
    """Return the name of a metric as Prometheus shows it, with prefix and suffix."""
    return PREFIX + metric.name + ("_total" if metric.kind == "counter" else "")


def _table(metrics: Iterable[Metric]) -> str:
    lines = ["| name | kind | labels | meaning | in Apache Kafka |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        kafka = f"`{metric.kafka}`" if metric.kafka else ""
        lines.append(f"| `{exposed_name(metric)}` | {metric.kind} | {labels} | {metric.help} | {kafka} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
