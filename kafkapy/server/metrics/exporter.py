"""Metrics over HTTP in the Prometheus format (`kafkapy.metrics.listen`), made from the broker's counters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkapy.runtime.counters import BOUNDS, Histogram, Registry
from kafkapy.runtime.metrics_page import MetricsPage
from kafkapy.server.metrics.coordinators import coordinator_counters, coordinator_gauges

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.metrics.exporter")

PREFIX = "kafkapy_"


def metrics_page(listen: str, registry: Registry, broker: Services) -> MetricsPage:
    """Start the metrics page of a broker and return it. `listen` is HOST:PORT. Raise OSError."""
    host, _, port = listen.rpartition(":")
    page = MetricsPage(host.strip("[]"), int(port), _Collector(registry, broker))
    log.info("metrics are served at http://%s/metrics", page.address)
    return page


class _Collector:
    """Converts the registry and the broker's own numbers into metric families, at each request for the page."""

    def __init__(self, registry: Registry, broker: Services) -> None:
        self._registry = registry
        self._broker = broker

    def collect(self) -> Iterator[Any]:
        """Yield all metric families; prometheus_client calls this for each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        families: dict[str, Any] = {}
        kinds = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        for metric in self._registry:
            names = [name for name, _ in metric.labels]
            values = [value for _, value in metric.labels]
            family = families.get(metric.name)
            if family is None:
                family = families[metric.name] = kinds[metric.kind](PREFIX + metric.name, metric.help, labels=names)
            if isinstance(metric.source, Histogram):
                family.add_metric(values, _buckets(metric.source), metric.source.total)
            else:
                family.add_metric(values, metric.source.value)
        yield from families.values()
        yield from self._requests(CounterMetricFamily)
        yield from self._logs(GaugeMetricFamily)
        yield from self._coordinators(CounterMetricFamily, GaugeMetricFamily)

    def _requests(self, counter: Any) -> Iterator[Any]:
        meters = self._broker.meters
        requests = counter(PREFIX + "requests", "Requests handled, by API", labels=["api"])
        for api, count in list(meters.requests.items()):
            requests.add_metric([api], count)
        yield requests
        errors = counter(PREFIX + "errors", "Errors that partitions were answered with", labels=["api", "error"])
        for (api, name), count in list(meters.errors.items()):
            errors.add_metric([api, name], count)
        yield errors
        for direction, sizes in (("in", meters.topic_bytes_in), ("out", meters.topic_bytes_out)):
            family = counter(f"{PREFIX}topic_bytes_{direction}", f"Record bytes {direction}", labels=["topic"])
            for topic, size in list(sizes.items()):
                family.add_metric([topic], size)
            yield family

    def _logs(self, gauge: Any) -> Iterator[Any]:
        labels = ["topic", "partition"]
        size = gauge(PREFIX + "log_size_bytes", "Bytes of a partition's segments", labels=labels)
        start = gauge(PREFIX + "log_start_offset", "First offset of a partition", labels=labels)
        end = gauge(PREFIX + "log_end_offset", "Offset of the next record of a partition", labels=labels)
        for partition in self._broker.replicas:
            at = [partition.topic, str(partition.index)]
            size.add_metric(at, partition.log.size)
            start.add_metric(at, partition.log.log_start_offset)
            end.add_metric(at, partition.log.log_end_offset)
        yield from (size, start, end)

    def _coordinators(self, counter: Any, gauge: Any) -> Iterator[Any]:
        for name, help, value in coordinator_gauges(self._broker.coordinators):
            yield gauge(PREFIX + name, help, value=value)
        for name, help, value in coordinator_counters(self._broker.coordinators):
            yield counter(PREFIX + name, help, value=value)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound, the form that Prometheus needs."""
    seen, buckets = 0, []
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], histogram.counts, strict=True):
        seen += count
        buckets.append((bound, float(seen)))
    return buckets
