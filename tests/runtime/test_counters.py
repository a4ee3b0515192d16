"""Counters and the registry that lists them."""

import pytest

from kafkapy.runtime.counters import BOUNDS, Counter, Histogram, Metric, Registry, metric_table

COUNT = Metric("count", "counter", ("listener",), "Counted by its owner.")
DEPTH = Metric("depth", "gauge", (), "Read by a function.")
TIME = Metric("time", "histogram", (), "Durations.")


def test_values_are_read_from_their_sources_when_asked() -> None:
    registry = Registry()
    values = [1]
    registry.register(COUNT, Counter(), "A").add(3)
    registry.register(COUNT, lambda: values[0] * 10, "B")
    registry.register(DEPTH, lambda: values[0])
    histogram = registry.register(TIME, Histogram())
    values[0] = 5
    assert registry.read() == {COUNT: [(("A",), 3), (("B",), 50)], DEPTH: [((), 5)], TIME: [((), histogram)]}


def test_a_later_source_of_the_same_labels_replaces_the_earlier() -> None:
    registry = Registry()
    registry.register(DEPTH, lambda: 1)
    registry.register(DEPTH, lambda: 2)
    assert registry.read() == {DEPTH: [((), 2)]}


def test_a_reader_gives_several_metrics_at_once_and_none_of_its_metrics_is_missing() -> None:
    registry = Registry()
    registry.register_reader([COUNT, DEPTH], lambda: [(COUNT, ("A",), 1), (COUNT, ("B",), 2)])
    assert registry.read() == {COUNT: [(("A",), 1), (("B",), 2)], DEPTH: []}


def test_labels_and_kind_must_be_those_of_the_definition() -> None:
    registry = Registry()
    with pytest.raises(ValueError, match=r"count has the labels \('listener',\); the values given are \(\)"):
        registry.register(COUNT, Counter())
    with pytest.raises(TypeError, match="time is a histogram"):
        registry.register(TIME, Counter())
    with pytest.raises(TypeError, match="depth is a gauge"):
        registry.register(DEPTH, Histogram())


def test_a_table_has_each_name_once() -> None:
    assert metric_table(COUNT, DEPTH) == {"count": COUNT, "depth": DEPTH}
    with pytest.raises(ValueError, match="the metric count is defined twice"):
        metric_table(COUNT, COUNT)


def test_a_histogram_puts_each_value_under_its_bound() -> None:
    histogram = Histogram()
    histogram.observe(0)
    histogram.observe(BOUNDS[0])
    histogram.observe(BOUNDS[3], times=7)
    histogram.observe(BOUNDS[3] * 1.0001)
    histogram.observe(1e6)
    assert histogram.counts[0] == 2
    assert histogram.counts[3] == 7
    assert histogram.counts[4] == 1
    assert histogram.counts[-1] == 1
    assert histogram.count == 11
