"""The metrics of a mirror, and the HTTP page that shows them in Prometheus format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafkapy.mirror.counts import Counts
from kafkapy.runtime.counters import Labels, Metric, Registry, metric_table
from kafkapy.runtime.metrics_page import MetricsPage

METRICS = metric_table(
    Metric("mirror_records", "counter", ("source",), "Records that the target has acknowledged."),
    Metric("mirror_bytes", "counter", ("source",), "Bytes of these records before compression."),
    Metric("mirror_lost", "counter", ("source",), "Records that the target refused.",
           "kafka.tools:type=MirrorMaker,name=MirrorMaker-numDroppedMessages"),
    Metric("mirror_commits", "counter", ("source",), "Commits of offsets."),
    Metric("mirror_failed_commits", "counter", ("source",), "Commits of offsets that failed."),
    Metric("mirror_fenced", "counter", ("source",), "Partitions whose producer was fenced by another mirror."),
    Metric("mirror_lag", "gauge", ("source", "topic", "partition"),
           "Offsets between the mirror's position in a partition and the partition's end.",
           "kafka.consumer:type=consumer-fetch-manager-metrics: records-lag"),
)  # fmt: skip

# The attribute of Counts that a counter adds up over the streams of a source.
_ATTRIBUTES = {
    "mirror_records": "records",
    "mirror_bytes": "size",
    "mirror_lost": "lost",
    "mirror_commits": "commits",
    "mirror_failed_commits": "failed_commits",
    "mirror_fenced": "fenced",
}

Streams = Sequence[tuple[str, Counts]]  # each stream's source and counts


def metrics_page(listen: tuple[str, int], read: Callable[[], Streams]) -> MetricsPage:
    """Start an HTTP server at `listen` (host, port) for the metrics of a mirror. Raise OSError if that fails.

    `read` returns the source and the counts of each stream whenever the page is loaded.
    """
    registry = Registry()
    registry.register_reader(METRICS.values(), lambda: _values(read()))
    return MetricsPage(*listen, registry)


def _values(streams: Streams) -> Iterator[tuple[Metric, Labels, float]]:
    for name, attribute in _ATTRIBUTES.items():
        for source in dict.fromkeys(source for source, _ in streams):
            values = (getattr(counts, attribute) for its, counts in streams if its == source)
            yield METRICS[name], (source,), sum(values)
    for source, counts in streams:
        for (topic, partition), lag in counts.lags.items():
            yield METRICS["mirror_lag"], (source, topic, str(partition)), lag
