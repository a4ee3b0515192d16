"""A mirror's counts over HTTP in Prometheus form. The library is imported when the page is switched on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafkapy.mirror.counts import Counts

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


class MetricsPage:
    """`listen` is HOST:PORT; port 0 takes a free one (`address` says which). `read` gives counts with the name of
    their source. Raises OSError where it cannot listen."""

    def __init__(self, listen: tuple[str, int], read: Read) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        from kafkapy.runtime.addresses import host_port

        collectors = CollectorRegistry(auto_describe=False)
        collectors.register(_Collector(read))
        self._server, self._thread = start_http_server(listen[1], listen[0], registry=collectors)
        self.address = host_port(listen[0], self._server.server_port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if isinstance(self._thread, threading.Thread):
            self._thread.join()


class _Collector:
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
            PREFIX + "lag", "Offsets between where it is and the end", labels=["source", "topic", "partition"]
        )
        for source, counts in streams:
            for (topic, partition), behind in counts.lags.items():
                lag.add_metric([source, topic, str(partition)], behind)
        yield lag
