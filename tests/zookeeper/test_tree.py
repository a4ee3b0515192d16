"""The tree in ZooKeeper passes the same tests as the embedded tree."""

from collections.abc import Callable

import pytest

from kafkapy.metadata.tree import Create, Delete, Tree
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from tests.harness.tree_suite import Reopen, TreeSuite
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper

OpenTree = Callable[..., ZooKeeperTree]


@pytest.fixture
def reopened(open_tree: Callable[[], Tree]) -> Reopen:
    def reopen(tree: Tree) -> Tree:
        tree.close()
        return open_tree()

    return reopen


def test_without_a_chroot_zookeepers_own_nodes_are_not_shown(zookeeper: ZooKeeper, open_tree: OpenTree) -> None:
    for connect in (zookeeper.address, f"{zookeeper.address}/"):
        tree, other = open_tree(connect), open_tree(connect)
        assert "zookeeper" not in tree.children("/")
        tree.commit([Create("/top", b"x")])
        eventually(lambda other=other: other.exists("/top"))
        tree.commit([Delete("/top")])
        eventually(lambda other=other: not other.exists("/top"))


class TestZooKeeperTree(TreeSuite):
    pass
