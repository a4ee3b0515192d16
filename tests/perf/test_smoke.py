"""Measurements run with a few megabytes on a kafkapy broker that is started as a user starts it."""

import pytest

from perf.measurement import KAFKAPY, Bench, Measurement
from perf.measurements import ALL

OTHERS = {"java", "rebalance_zookeeper"}  # they need other programs, or wait long
WITH_JAVA = ("spark-", "replication_", "controller_")
MEASUREMENTS = [each for each in ALL if each.name not in OTHERS and not each.name.startswith(WITH_JAVA)]
# One of each family: writing, reading, small requests, processes, coordinators, many topics, files, clients.
QUICK = {
    "produce",
    "consume",
    "requests",
    "start",
    "transactions",
    "topics",
    "segments",
    "columns",
    "original_producer",
}


@pytest.mark.parametrize(
    "measurement",
    [
        pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.not_quick)
        for each in MEASUREMENTS
    ],
)
def test_a_measurement_fills_its_rows(bench: Bench, measurement: Measurement) -> None:
    found = measurement.run(bench, KAFKAPY)
    if not found and measurement.name == "two_namespaces":
        pytest.skip(" ".join(bench.notes.values()))
    assert set(found) == {row.key for row in measurement.rows}
    assert all(figure >= 0 for figure in found.values())
    assert set(measurement.limit(bench)) <= set(found)
    assert not list(bench.directory.glob("data-*"))
