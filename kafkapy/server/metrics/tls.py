"""The metrics of TLS listeners. Those of handshakes are in kafkapy.network.metrics."""

from __future__ import annotations

from kafkapy.runtime.counters import Metric, metric_table

METRICS = metric_table(
    Metric(
        "tls_certificate_days_left",
        "gauge",
        ("listener",),
        "Days until the listener's certificate, or one above it that is sent along, expires.",
    ),
)
