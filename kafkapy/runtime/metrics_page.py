"""Serves metrics over HTTP in Prometheus format. prometheus_client is imported only when it is used, because the import
costs 60 ms and 14 MB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.counters import BOUNDS, Histogram, Registry
from kafkapy.runtime.threads import show_name, starting

PREFIX = "kafkapy_"


class MetricsPage:
    """An HTTP server for the metrics of a registry. It starts on construction and runs until `stop`.

    `address` is its HOST:PORT; with port 0 the system chooses a free port. The constructor raises OSError if it cannot
    listen, and NoThread if the server's thread cannot be started.
    """

    def __init__(self, host: str, port: int, registry: Registry) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        collectors = CollectorRegistry(auto_describe=False)
        collectors.register(_Collector(registry))
        with starting("metrics"):
            self._server, self._thread = start_http_server(port, host, registry=collectors)
        self._thread.name = "kafkapy-metrics"
        show_name(self._thread)
        self.address = host_port(host, self._server.server_port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if isinstance(self._thread, threading.Thread):
            self._thread.join()


class _Collector:
    """Formats the values of a registry as the metric families of prometheus_client."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        """Yield all metric families. prometheus_client calls this for each request for the page."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        kinds = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        for metric, values in self._registry.read().items():
            family = kinds[metric.kind](PREFIX + metric.name, metric.help, labels=metric.labels)
            for labels, value in values:
                if isinstance(value, Histogram):
                    family.add_metric(labels, _buckets(value), value.total)
                else:
                    family.add_metric(labels, value)
            yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return (upper bound, number of durations up to it) for each bucket of a histogram, the form that Prometheus
    needs."""
    seen, buckets = 0, []
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], histogram.counts, strict=True):
        seen += count
        buckets.append((bound, float(seen)))
    return buckets
