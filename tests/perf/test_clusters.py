"""Measurements of clusters, with a few megabytes: three brokers with replicas, Apache Kafka as the controller."""

import pytest

from perf import jars
from perf.clusters import CONTROLLER, IDS, cluster
from perf.measurement import KAFKA, KAFKAPY, Bench, Measurement
from perf.measurements.replication_beside import ReplicationBeside
from perf.measurements.replication_catch_up import ReplicationCatchUp
from perf.measurements.replication_idle import ReplicationIdle
from perf.measurements.replication_latency import ReplicationLatency
from perf.measurements.replication_produce import ReplicationProduce
from perf.raw_client import RawClient

pytestmark = pytest.mark.other_runtime


@pytest.fixture(autouse=True)
def fetched() -> None:
    jars.fetch()


@pytest.mark.parametrize("kind", [KAFKA, KAFKAPY])
def test_a_cluster_has_a_controller_without_replicas(bench: Bench, kind: str) -> None:
    with cluster(bench, kind) as running:
        running.create_topic("small", [(2, 3), (3, 1)])
        with RawClient(running.brokers[2].port) as client:  # a leader: `create_topic` has waited until it knows
            assert client.brokers() == {CONTROLLER, *IDS}
            assert client.in_sync("small") == [2, 2]
        assert running.log(2, "small", 0).is_dir()
        assert not running.log(1, "small", 0).exists()
        assert not (running.controller.log_directory / "small-0").exists()


@pytest.mark.parametrize(
    "measurement",
    [
        pytest.param(each, id=each.name)
        for each in (
            ReplicationProduce(),
            ReplicationLatency(),
            ReplicationCatchUp(),
            ReplicationBeside(),
            ReplicationIdle(),
        )
    ],
)
def test_a_measurement_fills_its_rows(bench: Bench, measurement: Measurement) -> None:
    found = measurement.run(bench, KAFKAPY)
    assert set(found) == {row.key for row in measurement.rows}
    assert all(figure >= 0 for figure in found.values())
    assert set(measurement.limit(bench)) <= set(found)
    assert not list(bench.directory.glob("data-*"))
