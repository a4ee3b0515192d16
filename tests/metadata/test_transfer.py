"""A tree carried into another one: what goes, in which order, and what a stop half way leaves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.metadata import batches, paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local import LocalTree
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.transfer import Carried, carried, changes, difference, is_unfinished
from kafkapy.metadata.tree import Create, Set, wait


@pytest.fixture
def source(tmp_path: Path) -> Iterator[LocalTree]:
    """A cluster with a topic, settings, an offset, and what ends with a process or is a note."""
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


def test_what_lasts_is_carried(source: LocalTree, target: LocalTree) -> None:
    for operations in changes(carried(source), {}):
        target.commit(operations)
    assert carried(target) == carried(source)
    assert target.get("/consumers/g/offsets/t/0").data == b"17"
    assert target.get(paths.BROKER_SEQUENCE).version == 2  # the next generated broker id is a new one
    assert not target.exists(paths.CONTROLLER)
    assert not target.exists("/consumers/g/ids/c")
    assert target.children(paths.CONFIG_CHANGES) == []


def test_each_stop_half_way_shows_and_is_gone_on_from(
    source: LocalTree, target: LocalTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MAX_OPERATIONS", 5)
    nodes = carried(source)
    tries = 0
    while difference(nodes, carried(target)):
        assert is_unfinished(nodes, carried(target))
        assert not target.exists(paths.CLUSTER_ID)
        target.commit(next(changes(nodes, carried(target))))  # and then it is killed
        tries += 1
    assert tries > 5
    assert not list(changes(nodes, carried(target)))


def test_nodes_that_every_cluster_has_are_in_nobodys_way(source: LocalTree, target: LocalTree) -> None:
    ClusterRegistry(target)
    target.ensure("/kafka-manager")
    assert is_unfinished(carried(source), carried(target))


def test_another_clusters_tree_is_not_an_unfinished_one(source: LocalTree, target: LocalTree) -> None:
    nodes = carried(source)
    target.ensure("/config/topics/t")
    target.commit([Set("/config/topics/t", b"other")])
    assert not is_unfinished(nodes, carried(target))
    target.commit([Set("/config/topics/t", nodes["/config/topics/t"].data)])
    assert is_unfinished(nodes, carried(target))
    target.ensure("/brokers/topics/u")
    assert not is_unfinished(nodes, carried(target))


def test_a_tree_that_is_replaced_has_no_cluster_until_it_is_whole(source: LocalTree, target: LocalTree) -> None:
    nodes = carried(source)
    cluster = ClusterRegistry(target)
    cluster.ensure_cluster_id()
    wait(TopicRegistry(target).create, "old", {0: [1]}, {})
    steps = list(changes(nodes, carried(target)))
    for operations in steps[:-1]:
        target.commit(operations)
        assert cluster.cluster_id() is None
    target.commit(steps[-1])
    assert not difference(nodes, carried(target))
    assert not target.exists("/brokers/topics/old")


def test_no_change_is_larger_than_zookeeper_takes() -> None:
    data = bytes(100_000)
    nodes = {f"/consumers/{number}": Carried(data) for number in range(10)}
    nodes[paths.CLUSTER_ID] = Carried(b"{}")
    sizes = [
        sum(len(operation.data) for operation in operations if isinstance(operation, Create))
        for operations in changes(nodes, {})
    ]
    assert sum(sizes) == 1_000_002
    assert max(sizes) <= 256 * 1024
