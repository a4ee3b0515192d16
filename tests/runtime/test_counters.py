"""Counters and the registry that lists them."""

import pytest

from kafkapy.runtime.counters import BOUNDS, Histogram, Registry


def test_the_same_name_and_labels_give_the_same_counter() -> None:
    registry = Registry()
    registry.counter("bytes_in", "bytes", {"listener": "A", "x": "1"}).add(3)
    registry.counter("bytes_in", "bytes", {"x": "1", "listener": "A"}).add(4)
    registry.counter("bytes_in", "bytes").add()
    assert registry.value("bytes_in", {"listener": "A", "x": "1"}) == 7
    assert registry.value("bytes_in") == 1
    assert {(m.name, m.kind, m.labels) for m in registry} == {
        ("bytes_in", "counter", (("listener", "A"), ("x", "1"))),
        ("bytes_in", "counter", ()),
    }


def test_gauges_and_sampled_counters_are_read_when_asked() -> None:
    registry = Registry()
    values = [1]
    registry.gauge("depth", "how deep", lambda: values[0])
    registry.sampled("turns", "how often", lambda: values[0] * 10)
    values[0] = 5
    assert registry.value("depth") == 5
    assert registry.value("turns") == 50
    registry.remove("depth")
    registry.remove("depth")
    with pytest.raises(KeyError):
        registry.value("depth")


def test_one_name_cannot_be_two_kinds() -> None:
    registry = Registry()
    registry.counter("x", "x")
    with pytest.raises(ValueError, match="is a counter"):
        registry.histogram("x", "x")
    registry.histogram("h", "h")
    with pytest.raises(TypeError, match="histogram"):
        registry.value("h")


def test_a_histogram_puts_each_value_under_its_bound() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) == 0
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
    assert histogram.quantile(0.5) == BOUNDS[3]
    assert histogram.quantile(1) == float("inf")
