"""Failovers between kafkapy's controller and Apache Kafka's after each change that the first controller makes.

`python -m tests.zookeeper.crashes_beside_kafka` runs all cases, with those that take too long for a test.
"""

from collections.abc import Iterator

import pytest

from tests.harness.zookeeper import ZooKeeper
from tests.zookeeper.crashes_beside_kafka import CASES, MixedCluster, from_kafka, from_kafkapy, run_all, run_case

FROM_KAFKAPY = ("creation", "more partitions", "deletion", "preferred election", "replaced reassignment")
FROM_KAFKA = ("more partitions",)
FROM_KAFKA_AT = (("deletion", 1), ("deletion", 15), ("unclean election", 2), ("reassignment", 4))


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    cluster = MixedCluster(tmp_path_factory.mktemp("crashes"), zookeeper, "/crashes")
    yield cluster
    cluster.close()


@pytest.mark.parametrize("name", FROM_KAFKAPY)
def test_kafkas_controller_completes_what_ours_began(cluster: MixedCluster, name: str) -> None:
    run_all(cluster, [name], from_kafkapy(cluster), "from-kafkapy", print)


@pytest.mark.parametrize("name", FROM_KAFKA)
def test_our_controller_completes_what_kafkas_began(cluster: MixedCluster, name: str) -> None:
    """Kafka's controller gets no response to its last change."""
    run_all(cluster, [name], from_kafka(cluster, answered=False, expire=False), "from-kafka", print)


@pytest.mark.parametrize(("name", "changes"), FROM_KAFKA_AT)
def test_our_controller_completes_what_a_dead_broker_of_kafka_began(
    cluster: MixedCluster, name: str, changes: int
) -> None:
    """The session of Kafka's broker ends in the failover, and the broker registers again later."""
    failover = from_kafka(cluster, answered=True, expire=True)
    run_case(cluster, CASES[name], failover, f"dead-{name.replace(' ', '-')}-{changes}", changes)
