"""The registrations of a cluster: its id, brokers, controllers and features, at Kafka's paths in the tree."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint
from kafkapy.metadata.controller_fence import ControllerFence, Term
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Create, Delete, Node, NodeExists


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    yield tree
    tree.close()


@pytest.fixture
def cluster(tree: LocalTree) -> ClusterRegistry:
    return ClusterRegistry(tree)


def test_the_nodes_that_kafka_expects_exist(tree: LocalTree, cluster: ClusterRegistry) -> None:
    for path in paths.ROOTS:
        assert tree.exists(path)
    before = tree.subtree("/")
    ClusterRegistry(tree)
    assert tree.subtree("/") == before


def test_a_cluster_id_is_created_once(tree: LocalTree, cluster: ClusterRegistry) -> None:
    assert cluster.cluster_id() is None
    cluster_id = cluster.ensure_cluster_id()
    assert len(cluster_id) == 22
    assert cluster.ensure_cluster_id("somethingElse12345678_") == cluster_id
    assert ClusterRegistry(tree).cluster_id() == cluster_id
    assert json.loads(tree.get("/cluster/id").data) == {"version": "1", "id": cluster_id}


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
    tree.close()
    again = LocalTree(tmp_path / FILE_NAME)
    cluster = ClusterRegistry(again)
    assert cluster.broker_ids() == []
    assert cluster.register_broker(3, endpoints, None, 0) > epoch
    assert "rack" not in json.loads(again.get("/brokers/ids/3").data)
    again.close()


def test_a_broker_replaces_the_registration_of_its_earlier_session_and_no_other(
    tree: LocalTree, cluster: ClusterRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier session may not have expired yet: Kafka's KAFKA-7165."""
    find = tree.find

    def of_another_session(path: str) -> Node | None:
        node = find(path)
        return node and node._replace(mine=False)

    monkeypatch.setattr(tree, "find", of_another_session)
    epoch = cluster.register_broker(3, [Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT")], None, 0)
    again = cluster.register_broker(3, [Endpoint("PLAINTEXT", "h", 2, "PLAINTEXT")], None, 0)
    assert again > epoch
    assert cluster.broker_address(3) == ("h", 2)
    other = ClusterRegistry(tree)
    with pytest.raises(NodeExists):
        other.register_broker(3, [], None, 0)
    tree.commit([Delete("/brokers/ids/3")])
    assert other.register_broker(3, [], None, 0) > again
    with pytest.raises(NodeExists):
        cluster.register_broker(3, [], None, 0)


def test_each_controller_has_an_epoch_of_its_own(tree: LocalTree, cluster: ClusterRegistry, tmp_path: Path) -> None:
    assert cluster.controller_id() == -1
    assert cluster.controller_epoch() == 0
    assert cluster.become_controller(0, 1700000000000) == Term(1, 1)
    assert cluster.become_controller(1, 1700000000000) is None
    assert cluster.become_controller(0, 1700000000001) == Term(1, 1), "it is already, and learns that"
    assert cluster.controller_id() == 0
    assert json.loads(tree.get("/controller").data) == {
        "version": 2,
        "brokerid": 0,
        "timestamp": "1700000000000",
        "kraftControllerEpoch": -1,
    }
    tree.commit([Delete("/controller")])
    assert cluster.become_controller(1, 0) == Term(2, 2)
    tree.close()
    again = LocalTree(tmp_path / FILE_NAME)
    cluster = ClusterRegistry(again)
    assert cluster.controller_id() == -1
    assert cluster.become_controller(0, 0) == Term(3, 3)
    assert again.get("/controller_epoch").data == b"3"
    again.close()


@pytest.mark.parametrize(
    ("path", "read"),
    [
        (paths.CLUSTER_ID, ClusterRegistry.cluster_id),
        (paths.CONTROLLER, ClusterRegistry.controller_id),
        (paths.CONTROLLER_EPOCH, ClusterRegistry.controller_epoch),
    ],
)
@pytest.mark.parametrize("data", [b"\xff", b"{", b"{}", b"[]", b'{"id":'])
def test_a_node_that_cannot_be_read_is_named(
    tree: LocalTree, cluster: ClusterRegistry, path: str, read: Callable[[ClusterRegistry], object], data: bytes
) -> None:
    tree.commit([Create(path, data)])
    with pytest.raises(ValueError, match=path):
        read(cluster)


ENABLED = {"features": {}, "version": 2, "status": 1}


@pytest.mark.parametrize(
    ("before", "after", "epoch"),
    [
        (None, ENABLED, 0),
        (b'{"features":{},"version":1,"status":1}', ENABLED, 1),
        (b'{"features":{"f":{"max_version_level":1}},"version":2,"status":0}', ENABLED, 1),
        (b'{"features":{},"version":2,"status":1,"more":1}', {**ENABLED, "more": 1}, 0),
        (
            b'{"features":{"f":{"max_version_level":1}},"version":1,"status":1}',
            {"features": {"f": {"max_version_level": 1}}, "version": 1, "status": 1},
            0,
        ),
        (b"{", None, -1),
    ],
)
def test_a_new_controller_enables_features(
    tree: LocalTree, cluster: ClusterRegistry, before: bytes | None, after: object, epoch: int
) -> None:
    assert cluster.features_epoch() == -1
    if before is not None:
        tree.commit([Create(paths.FEATURE, before)])
    fence = ControllerFence(tree)
    fence.set_term(cluster.become_controller(1, 0))
    cluster.prepare_controller(fence)
    data = tree.get(paths.FEATURE).data
    assert data == before if after is None else json.loads(data) == after
    assert cluster.features_epoch() == epoch
