"""When a broker of a cluster stands for election as controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Delete
from kafkapy.server.membership import Membership
from tests.harness.waiting import eventually

ME = 3


class Election:
    """Elections. In the first `lost` ones, the controller's node is deleted before a broker reads it."""

    def __init__(self, tree: LocalTree, cluster: ClusterRegistry, lost: int) -> None:
        self._tree = tree
        self._cluster = cluster
        self._lost = lost
        self.stood = 0

    def stand(self) -> None:
        self.stood += 1
        if self.stood > self._lost:
            self._cluster.become_controller(ME, 0)

    def end(self) -> None:
        raise AssertionError("there is no other controller")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    tree = LocalTree(tmp_path / FILE_NAME)
    yield tree
    tree.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_broker_stands_for_election_whenever_there_is_no_controller(tree: LocalTree, lost: int) -> None:
    """No watch reports that the new controller's node is gone, if the broker has not seen the node."""
    cluster = ClusterRegistry(tree)
    membership = Membership(tree, cluster, ME, "here")
    election = Election(tree, cluster, lost)
    failures: list[str] = []
    membership.follow(lambda: None, election, failures.append)
    try:
        eventually(lambda: cluster.controller_id() == ME)
        assert election.stood == 1 + lost
        tree.commit([Delete(paths.CONTROLLER)])
        eventually(lambda: cluster.controller_id() == ME)
        assert election.stood == 2 + lost
        assert failures == []
    finally:
        membership.stop()
