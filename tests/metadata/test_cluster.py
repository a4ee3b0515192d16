import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.errors import KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint, ProducerIds
from kafkapy.metadata.local import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Delete, NodeExists, Set


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    yield tree
    tree.close()


@pytest.fixture
def cluster(tree: LocalTree) -> ClusterRegistry:
    return ClusterRegistry(tree)


def test_the_nodes_that_kafka_expects_are_there(tree: LocalTree, cluster: ClusterRegistry) -> None:
    for path in paths.ROOTS:
        assert tree.exists(path)
    before = tree.subtree("/")
    ClusterRegistry(tree)
    assert tree.subtree("/") == before


def test_a_cluster_id_is_made_once(tree: LocalTree, cluster: ClusterRegistry) -> None:
    assert cluster.cluster_id() is None
    made = cluster.ensure_cluster_id()
    assert len(made) == 22
    assert cluster.ensure_cluster_id("somethingElse12345678_") == made
    assert ClusterRegistry(tree).cluster_id() == made
    assert json.loads(tree.get("/cluster/id").data) == {"version": "1", "id": made}


def test_a_cluster_id_can_be_given(cluster: ClusterRegistry) -> None:
    assert cluster.ensure_cluster_id("cluster-that-was-there") == "cluster-that-was-there"


def test_generated_broker_ids_begin_above_the_reserved_ones(cluster: ClusterRegistry) -> None:
    assert [cluster.generate_broker_id(1000) for _ in range(3)] == [1001, 1002, 1003]


def test_a_broker_is_registered_as_kafka_does_it_until_its_process_ends(tree: LocalTree, tmp_path: Path) -> None:
    cluster = ClusterRegistry(tree)
    endpoints = [Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"), Endpoint("IN", "::1", 9093, "PLAINTEXT")]
    epoch = cluster.register_broker(3, endpoints, "r1", 1700000000000)
    assert json.loads(tree.get("/brokers/ids/3").data) == {
        "version": 5,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": ["PLAINTEXT://h:9092", "IN://[::1]:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "IN": "PLAINTEXT"},
        "rack": "r1",
        "features": {},
    }
    assert cluster.broker_ids() == [3]
    with pytest.raises(NodeExists):
        cluster.register_broker(3, endpoints, None, 0)
    tree.close()
    again = LocalTree(tmp_path / FILE_NAME)
    cluster = ClusterRegistry(again)
    assert cluster.broker_ids() == []
    assert cluster.register_broker(3, endpoints, None, 0) > epoch
    assert "rack" not in json.loads(again.get("/brokers/ids/3").data)
    again.close()


def test_each_controller_has_an_epoch_of_its_own(tree: LocalTree, cluster: ClusterRegistry, tmp_path: Path) -> None:
    assert cluster.controller_id() == -1
    assert cluster.controller_epoch() == 0
    assert cluster.become_controller(0, 1700000000000) == 1
    assert cluster.become_controller(1, 1700000000000) is None
    assert cluster.controller_id() == 0
    assert json.loads(tree.get("/controller").data) == {
        "version": 2,
        "brokerid": 0,
        "timestamp": "1700000000000",
        "kraftControllerEpoch": -1,
    }
    tree.commit([Delete("/controller")])
    assert cluster.become_controller(1, 0) == 2
    tree.close()
    again = LocalTree(tmp_path / FILE_NAME)
    cluster = ClusterRegistry(again)
    assert cluster.controller_id() == -1
    assert cluster.become_controller(0, 0) == 3
    assert again.get("/controller_epoch").data == b"3"
    again.close()


def test_producer_ids_come_in_blocks_of_a_thousand(tree: LocalTree, cluster: ClusterRegistry) -> None:
    ids = ProducerIds(tree, 7)
    assert [ids.next() for _ in range(1001)] == list(range(1001))
    assert json.loads(tree.get("/latest_producer_id_block").data) == {
        "version": 1,
        "broker": 7,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert ProducerIds(tree, 7).next() == 2000


def test_producer_ids_are_given_at_once_unless_a_block_has_to_be_taken(
    tree: LocalTree, cluster: ClusterRegistry
) -> None:
    ids = ProducerIds(tree, 7)
    given: list[int | KafkaError] = []
    waiting: list[Callable[[], None]] = []
    ids.give(given.append, waiting.append)
    assert not given
    waiting.pop()()
    ids.give(given.append, waiting.append)
    assert given == [0, 1]
    assert not waiting


def test_producer_ids_are_unique_among_threads(tree: LocalTree, cluster: ClusterRegistry) -> None:
    managers = [ProducerIds(tree, 1), ProducerIds(tree, 2)]
    taken: list[int] = []
    lock = threading.Lock()

    def take(ids: ProducerIds) -> None:
        mine = [ids.next() for _ in range(1500)]
        with lock:
            taken.extend(mine)

    threads = [threading.Thread(target=take, args=(managers[index % 2],)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 6000


def test_producer_ids_end_before_they_overflow(tree: LocalTree, cluster: ClusterRegistry) -> None:
    last = 2**63 - 1
    block = {"version": 1, "broker": 0, "block_start": str(last - 999), "block_end": str(last)}
    tree.commit([Set("/latest_producer_id_block", json.dumps(block).encode())])
    with pytest.raises(KafkaError, match="no producer ids left"):
        ProducerIds(tree, 0).next()


def test_a_broken_producer_id_block_is_an_error_code(tree: LocalTree, cluster: ClusterRegistry) -> None:
    for data in (b"{", b"[1]", b'{"version":1}', b'{"block_end":"x"}'):
        tree.commit([Set("/latest_producer_id_block", data)])
        with pytest.raises(KafkaError, match="no producer ids to be had"):
            ProducerIds(tree, 0).next()
