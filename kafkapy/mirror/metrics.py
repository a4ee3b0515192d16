"""A mirror's metrics over HTTP in Prometheus format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafkapy.mirror.counts import Counts
from kafkapy.runtime.metrics_page import MetricsPage

PREFIX = "kafkapy_mirror_"
COUNTERS = {
    "records": "Records that the target has acknowledged",
    "size": "Their bytes before compression",
    "lost": "Records that the target did not take",
    "commits": "Commits of offsets",
    "failed_commits": "Commits of offsets that failed",
    "fenced": "Partitions whose transactions another mirror has ended",
}
NAMES = {"size": "bytes"}

Read = Callable[[], Sequence[tuple[str, Counts]]]


def metrics_page(listen: tuple[str, int], read: Read) -> MetricsPage:
    """Return a metrics page at `listen` (host, port) for the counts that `read` returns. Raises OSError."""
    return MetricsPage(*listen, _Collector(read))


class _Collector:
    """Adds up the counts of streams by source when the metrics are read."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        streams = self._read()
        for name, help in COUNTERS.items():
            family = CounterMetricFamily(PREFIX + NAMES.get(name, name), help, labels=["source"])
            for source in dict.fromkeys(source for source, _ in streams):
                family.add_metric([source], sum(getattr(counts, name) for its, counts in streams if its == source))
            yield family
        lag = GaugeMetricFamily(
            PREFIX + "lag", "Offsets between position and end of the partition", labels=["source", "topic", "partition"]
        )
        for source, counts in streams:
            for (topic, partition), behind in counts.lags.items():
                lag.add_metric([source, topic, str(partition)], behind)
        yield lag
