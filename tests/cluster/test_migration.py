"""Brokers of a cluster become kafkapy brokers and Kafka brokers again, one by one, while clients use the cluster."""

import random
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.cluster.histories import Step, check_history
from tests.cluster.nemesis import Done
from tests.cluster.replicas import wait_until_equal
from tests.harness.brokers import KafkapyBroker, kafkapy_command
from tests.harness.cluster import Cluster
from tests.harness.records import consume, create, produce

pytestmark = [pytest.mark.other_runtime, pytest.mark.timeout(600)]


def replaced(number: int, kind: str) -> Step:
    """Return a step that stops a broker and starts one of the given kind on the same log directory."""

    def replace(cluster: Cluster, _: random.Random) -> Done:
        cluster.wait_until_quiet()
        cluster[number].stop()
        cluster[number].start(kind)
        cluster[number].wait_until_started()
        cluster.wait_until_quiet()
        return Done(f"broker {number} is a {kind} broker now", 1)

    return replace


def test_three_kafka_brokers_become_kafkapy_brokers_and_kafka_brokers_again(tmp_path: Path) -> None:
    """The controller, too, becomes a kafkapy broker, and a Kafka broker again."""
    there = [replaced(number, "kafkapy") for number in (1, 2, 3)]
    back = [replaced(number, "kafka") for number in (1, 2, 3)]
    with Cluster(tmp_path / "cluster", ("kafka", "kafka", "kafka")) as cluster:
        check_history(cluster, tmp_path / "history", 1, random.Random(1), [*there, *back])


@pytest.mark.parametrize("others", ["kafka", "kafkapy"])
def test_an_embedded_broker_moves_to_zookeeper_and_two_brokers_join(tmp_path: Path, others: str) -> None:
    """After that its topics, with `__consumer_offsets`, grow to three replicas."""
    directory = tmp_path / "cluster"
    first = [f"a{number}" for number in range(500)]
    second = [f"b{number}" for number in range(500)]
    embedded = KafkapyBroker(directory / "broker-1", {"broker.id": "1", "offsets.topic.num.partitions": "3"})
    create(embedded.bootstrap, NewTopic("t", 3, 1))
    produce(embedded.bootstrap, "t", first[:250], **{"compression.type": "lz4"})
    produce(embedded.bootstrap, "t", first[250:], **{"transactional.id": "tx"})
    assert consume(embedded.bootstrap, "t", "g", 500) == sorted(first)
    embedded.stop()
    with Cluster(directory, ("kafkapy", others, others), start=False) as cluster:
        words = ["zk", "export", "--directory", str(cluster[1].data), "--zookeeper", cluster.zookeeper.address]
        assert subprocess.run([*kafkapy_command(), *words], check=False).returncode == 0
        cluster.start([1])
        cluster.start([2, 3])
        cluster.wait_until_quiet()
        for topic in ("t", "__consumer_offsets"):
            cluster.move(topic, {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        view = cluster.wait_until_quiet()
        assert {view["t", p].replicas[0] for p in range(3)} == {1, 2, 3}
        produce(cluster.bootstrap, "t", second, **{"enable.idempotence": "true"})
        assert consume(cluster.bootstrap, "t", "g", 500) == sorted(second)
        assert consume(cluster.bootstrap, "t", "another", 1000) == sorted([*first, *second])
        assert wait_until_equal(cluster, view) == []
