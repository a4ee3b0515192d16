"""Metrics: their definitions, the registry of their values, counters and histograms.

Each subsystem defines its metrics in one table, `METRICS` in its module `metrics`, and registers the counters,
histograms and functions that have the values. `metrics_page` shows the metrics in Prometheus format.

Counting is on the hot paths, so it is one addition without a lock. With the GIL the count is exact. On a free-threaded
build, a counter that several threads add to may lose additions; a number that one thread counts, and a function reads,
is always exact.
"""

from __future__ import annotations

import collections
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeVar

Kind = Literal["counter", "gauge", "histogram"]

# 25 µs to 52 s, each bound twice the previous one: from an append in memory to a group's join.
BOUNDS: tuple[float, ...] = tuple(25e-6 * 2**i for i in range(22))


class Counter:
    """A metric value that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount


class Histogram:
    """A count of durations in buckets: `counts[i]` counts durations in (BOUNDS[i-1], BOUNDS[i]] seconds, and the last
    element durations above all bounds. `total` is their sum in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count `times` events that took `seconds` each, for example requests that were handled together."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metric(NamedTuple):
    """The definition of a metric: one entry of a subsystem's table. docs/metrics.md lists all of them.

    name: The Prometheus name, without the prefix `kafkapy_` and, for a counter, without the suffix `_total`.
    labels: The names of its labels.
    help: A sentence about its value. Durations are in seconds unless the name says otherwise.
    kafka: The metric of Apache Kafka that shows the same, empty if there is none.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    kafka: str = ""


Labels = tuple[str, ...]  # the values, in the order of `Metric.labels`
Value = float | Histogram
Source = Counter | Histogram | Callable[[], float]
S = TypeVar("S", bound=Source)
# Reads several metrics at once: yields (metric, label values, value).
Reader = Callable[[], Iterable[tuple[Metric, Labels, Value]]]


def metric_table(*metrics: Metric) -> dict[str, Metric]:
    """Return the metrics as a dict by name. Raise ValueError if two have the same name."""
    table: dict[str, Metric] = {}
    for metric in metrics:
        if metric.name in table:
            raise ValueError(f"the metric {metric.name} is defined twice")
        table[metric.name] = metric
    return table


class Registry:
    """The metrics of a process, and where their values are read from. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[tuple[Metric, Labels], Source] = {}
        self._readers: list[tuple[list[Metric], Reader]] = []

    def register(self, metric: Metric, source: S, *labels: str) -> S:
        """Register where the value of `metric` for these label values is read from, and return `source`.

        `source` is a Counter, a Histogram, or a function that returns the number. It replaces the earlier source for
        the same labels. Raises ValueError for a wrong number of labels, TypeError for a source that does not fit the
        kind of metric.
        """
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}; the values given are {labels}")
        if isinstance(source, Histogram) != (metric.kind == "histogram"):
            raise TypeError(f"{metric.name} is a {metric.kind}; its source must not be {source!r}")
        with self._lock:
            self._sources[metric, labels] = source
        return source

    def register_reader(self, metrics: Iterable[Metric], reader: Reader) -> None:
        """Register a function that reads several metrics at once, or a metric whose label values change.

        The result of `read` has all `metrics`, even while the function yields no value for one of them.
        """
        with self._lock:
            self._readers.append((list(metrics), reader))

    def read(self) -> dict[Metric, list[tuple[Labels, Value]]]:
        """Return the present values of all metrics: for each metric a list of (label values, value)."""
        with self._lock:
            sources, readers = list(self._sources.items()), list(self._readers)
        values: dict[Metric, list[tuple[Labels, Value]]] = {}
        for (metric, labels), source in sources:
            values.setdefault(metric, []).append((labels, _value(source)))
        for metrics, reader in readers:
            for metric in metrics:
                values.setdefault(metric, [])
            for metric, labels, value in reader():
                values[metric].append((labels, value))
        return values


class LabelledCounters:
    """Counters of `metrics` whose label values are found as events are counted. Any thread may use it."""

    def __init__(self, registry: Registry, metrics: Iterable[Metric]) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[tuple[Metric, Labels]] = collections.Counter()
        registry.register_reader(metrics, self._read)

    def add(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """Count an event with these label values."""
        with self._lock:
            self._counts[metric, labels] += by

    def _read(self) -> list[tuple[Metric, Labels, Value]]:
        with self._lock:
            return [(metric, labels, count) for (metric, labels), count in self._counts.items()]


def _value(source: Source) -> Value:
    if isinstance(source, Counter):
        return source.value
    return source if isinstance(source, Histogram) else source()
