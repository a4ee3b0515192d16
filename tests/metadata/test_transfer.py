"""Copying a tree into another: the copied nodes, their order, and interruptions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.metadata import paths
from kafkapy.metadata.acls import AclRegistry
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local.tree import LocalTree
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.transfer import NodeData, changes, difference, is_unfinished, persistent_nodes
from kafkapy.metadata.tree import Create, Set, wait
from kafkapy.metadata.zookeeper import batches
from kafkapy.security.acls.bindings import Binding, Entry, Pattern


@pytest.fixture
def source(tmp_path: Path) -> Iterator[LocalTree]:
    """Return a cluster with a topic, settings, an offset, ephemeral nodes and notifications."""
    tree = LocalTree(tmp_path / "source.db")
    cluster = ClusterRegistry(tree)
    cluster.ensure_cluster_id()
    cluster.generate_broker_id(1000)
    cluster.generate_broker_id(1000)
    cluster.become_controller(1, 0)
    wait(TopicRegistry(tree).create, "t", {0: [1], 1: [1]}, {"segment.bytes": "4096"})
    tree.ensure("/consumers/g/offsets/t/0", "/consumers/g/ids")
    note = Create("/config/changes/config_change_", b"note", sequence=True)
    tree.commit([Set("/consumers/g/offsets/t/0", b"17"), Create("/consumers/g/ids/c", ephemeral=True), note])
    yield tree
    tree.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / "target.db")
    yield tree
    tree.close()


def test_persistent_nodes_are_copied(source: LocalTree, target: LocalTree) -> None:
    for operations in changes(persistent_nodes(source), {}):
        target.commit(operations)
    assert persistent_nodes(target) == persistent_nodes(source)
    assert target.get("/consumers/g/offsets/t/0").data == b"17"
    assert target.get(paths.BROKER_SEQUENCE).version == 2  # the next generated broker id is a new one
    assert not target.exists(paths.CONTROLLER)
    assert not target.exists("/consumers/g/ids/c")
    assert target.children(paths.CONFIG_CHANGES) == []


def test_acls_are_copied_and_their_notifications_are_not(source: LocalTree, target: LocalTree) -> None:
    binding = Binding(Pattern("TOPIC", "t"), Entry("User:a", "*", "READ", "ALLOW"))
    assert wait(AclRegistry(source, lambda: None).create, [binding]) == [None]
    AclRegistry(target, lambda: None)  # another broker with an authorizer has created empty nodes
    assert difference(persistent_nodes(source), persistent_nodes(target)).extra == []
    for operations in changes(persistent_nodes(source), persistent_nodes(target)):
        target.commit(operations)
    assert list(AclRegistry(target, lambda: None).index) == [binding]
    assert target.children(paths.ACL_CHANGES) == []


def test_an_interrupted_copy_is_recognized_and_continued(
    source: LocalTree, target: LocalTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MAX_OPERATIONS", 5)
    nodes = persistent_nodes(source)
    tries = 0
    while difference(nodes, persistent_nodes(target)):
        assert is_unfinished(nodes, persistent_nodes(target))
        assert not target.exists(paths.CLUSTER_ID)
        target.commit(next(changes(nodes, persistent_nodes(target))))  # and then it is killed
        tries += 1
    assert tries > 5
    assert not list(changes(nodes, persistent_nodes(target)))


def test_nodes_that_every_cluster_has_do_not_block_a_copy(source: LocalTree, target: LocalTree) -> None:
    ClusterRegistry(target)
    target.ensure("/kafka-manager")
    assert is_unfinished(persistent_nodes(source), persistent_nodes(target))


def test_another_clusters_tree_is_not_an_unfinished_copy(source: LocalTree, target: LocalTree) -> None:
    nodes = persistent_nodes(source)
    target.ensure("/config/topics/t")
    target.commit([Set("/config/topics/t", b"other")])
    assert not is_unfinished(nodes, persistent_nodes(target))
    target.commit([Set("/config/topics/t", nodes["/config/topics/t"].data)])
    assert is_unfinished(nodes, persistent_nodes(target))
    target.ensure("/brokers/topics/u")
    assert not is_unfinished(nodes, persistent_nodes(target))


def test_a_replaced_tree_has_no_cluster_id_until_it_is_complete(source: LocalTree, target: LocalTree) -> None:
    nodes = persistent_nodes(source)
    cluster = ClusterRegistry(target)
    cluster.ensure_cluster_id()
    wait(TopicRegistry(target).create, "old", {0: [1]}, {})
    steps = list(changes(nodes, persistent_nodes(target)))
    for operations in steps[:-1]:
        target.commit(operations)
        assert cluster.cluster_id() is None
    target.commit(steps[-1])
    assert not difference(nodes, persistent_nodes(target))
    assert not target.exists("/brokers/topics/old")


def test_changes_fit_zookeepers_size_limit() -> None:
    data = bytes(100_000)
    nodes = {f"/consumers/{number}": NodeData(data) for number in range(10)}
    nodes[paths.CLUSTER_ID] = NodeData(b"{}")
    sizes = [
        sum(len(operation.data) for operation in operations if isinstance(operation, Create))
        for operations in changes(nodes, {})
    ]
    assert sum(sizes) == 1_000_002
    assert max(sizes) <= 256 * 1024
