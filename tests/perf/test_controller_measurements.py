"""Measurements of clusters of one kind, with a few partitions; the helpers that they share."""

import time

import pytest

from perf import jars
from perf.admin import delete_topic
from perf.following_producer import FollowingProducer
from perf.many import wait_for
from perf.measurement import KAFKA, KAFKAPY, Bench, Measurement
from perf.measurements.controller_failover import ControllerFailover
from perf.measurements.controller_leaders import ControllerLeaders
from perf.measurements.controller_reassign import ControllerReassign
from perf.measurements.controller_small import ControllerSmall
from perf.measurements.controller_topics import ControllerTopics
from perf.one_kind import IDS, cluster

pytestmark = pytest.mark.other_runtime


@pytest.fixture(autouse=True)
def fetched() -> None:
    jars.fetch()


@pytest.mark.parametrize("kind", [KAFKA, KAFKAPY])
def test_a_cluster_of_one_kind_has_its_controller_and_survives_a_kill(bench: Bench, kind: str) -> None:
    with cluster(bench, kind) as running:
        assert running.controller() == IDS[0]
        running.create_topic("small", [(3, 1, 2), (2, 3, 1)])
        with running.removal("/brokers/ids/3") as removal:
            killed = time.perf_counter()
            running.kill(3)
            removed = removal.wait()
        led = running.wait_for_leaders({"small": {0: 1, 1: 2}})
        assert killed < removed < led
        running.start(3)
        running.wait_in_sync("small", [(3, 1, 2), (2, 3, 1)])
        running.elect_preferred_leaders("small", [(3, 1, 2), (2, 3, 1)])
        with running.client(1) as client:
            assert client.leaders("small") == [3, 2]
            delete_topic(client, "small")
            assert client.leaders("small") == []


def test_a_producer_follows_the_leaders_through_a_controlled_shutdown(bench: Bench) -> None:
    with cluster(bench, KAFKAPY) as running:
        running.create_topic("moved", [(3, 1, 2), (2, 3, 1)])
        ports = {number: broker.port for number, broker in running.brokers.items()}
        with FollowingProducer(ports, "moved", [0, 1]) as producer:
            wait_for(lambda: all(producer.acks.values()), "no acks")
            began = time.perf_counter()
            running.stop(3)
            ended = time.perf_counter()
            wait_for(lambda: min(acks[-1] for acks in producer.acks.values()) > ended, "no acks of the next leader")
        assert producer.longest_gap(began) > 0


@pytest.mark.parametrize(
    "measurement",
    [
        pytest.param(each, id=each.name)
        for each in (
            ControllerLeaders(),
            ControllerFailover(),
            ControllerTopics(),
            ControllerReassign(),
            ControllerSmall(),
        )
    ],
)
def test_a_measurement_fills_its_rows(bench: Bench, measurement: Measurement) -> None:
    found = measurement.run(bench, KAFKAPY)
    assert set(found) == {row.key for row in measurement.rows}
    assert all(figure >= 0 for figure in found.values())
    assert not list(bench.directory.glob("data-*"))
