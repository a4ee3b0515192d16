"""Counters, gauges and histograms of the broker; server.metrics exports them.

Counting is on the hot paths, so it is one addition without a lock. With the GIL that is exact. On a free-threaded
build, a counter that several threads add to may lose additions; counters of a single thread, read through
`Registry.sampled`, are always exact.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "histogram"]

# 25 µs to 52 s, each bound twice the previous one: from an append in memory to a group's join.
BOUNDS: tuple[float, ...] = tuple(25e-6 * 2**i for i in range(22))


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Gauge:
    """A number that is computed when it is read."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[[], float]) -> None:
        self._fn = fn

    @property
    def value(self) -> float:
        return self._fn()


class Histogram:
    """Durations in seconds in fixed buckets: `counts[i]` counts those in (BOUNDS[i-1], BOUNDS[i]], the last those
    above."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count `times` events of `seconds` each, for example requests that were handled together."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket that contains the quantile `share` (0 to 1); 0 without events."""
        wanted = share * self.count
        seen = 0
        for bound, count in zip(BOUNDS, self.counts, strict=False):
            seen += count
            if seen >= wanted and seen:
                return bound
        return float("inf") if self.count else 0.0


class Metric:
    """A counter, gauge or histogram with its name and labels."""

    __slots__ = ("help", "kind", "labels", "name", "source")

    def __init__(self, name: str, help: str, kind: Kind, labels: Labels, source: Counter | Gauge | Histogram) -> None:
        self.name = name
        self.help = help
        self.kind = kind
        self.labels = labels
        self.source = source


class Registry:
    """All metrics of a broker. The same name and labels always give the same object.

    Names are Prometheus names without the prefix `kafkapy_` (`network_bytes_in`); durations are seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[tuple[str, Labels], Metric] = {}

    def counter(self, name: str, help: str, labels: Mapping[str, str] | None = None) -> Counter:
        source = self._get_or_add(name, help, "counter", labels, Counter)
        assert isinstance(source, Counter)
        return source

    def sampled(self, name: str, help: str, fn: Callable[[], float], labels: Mapping[str, str] | None = None) -> None:
        """Register a counter that its owner keeps as a plain number and `fn` reads. Replaces an earlier
        registration."""
        self._put(name, help, "counter", labels, Gauge(fn))

    def gauge(self, name: str, help: str, fn: Callable[[], float], labels: Mapping[str, str] | None = None) -> None:
        """Register a gauge that `fn` reads. Replaces an earlier registration."""
        self._put(name, help, "gauge", labels, Gauge(fn))

    def histogram(self, name: str, help: str, labels: Mapping[str, str] | None = None) -> Histogram:
        source = self._get_or_add(name, help, "histogram", labels, Histogram)
        assert isinstance(source, Histogram)
        return source

    def remove(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Remove a metric, for example a deleted topic's; do nothing if it does not exist."""
        with self._lock:
            self._metrics.pop((name, _labels(labels)), None)

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """Return the present value of a counter or gauge. Raises KeyError if there is none with this name and
        labels."""
        source = self._metrics[name, _labels(labels)].source
        if isinstance(source, Histogram):
            raise TypeError(f"{name} is a histogram, which has no single value")
        return source.value

    def __iter__(self) -> Iterator[Metric]:
        with self._lock:
            metrics = list(self._metrics.values())
        return iter(metrics)

    def _get_or_add(
        self,
        name: str,
        help: str,
        kind: Kind,
        labels: Mapping[str, str] | None,
        make: Callable[[], Counter | Histogram],
    ) -> Counter | Gauge | Histogram:
        key = (name, _labels(labels))
        with self._lock:
            metric = self._metrics.get(key)
            if metric is None:
                metric = self._metrics[key] = Metric(name, help, kind, key[1], make())
            elif metric.kind != kind:
                raise ValueError(f"the metric {name} is a {metric.kind}, not a {kind}")
            return metric.source

    def _put(self, name: str, help: str, kind: Kind, labels: Mapping[str, str] | None, source: Gauge) -> None:
        key = (name, _labels(labels))
        with self._lock:
            self._metrics[key] = Metric(name, help, kind, key[1], source)


def _labels(labels: Mapping[str, str] | None) -> Labels:
    return tuple(sorted(labels.items())) if labels else ()
