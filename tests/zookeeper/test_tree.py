"""The tree in ZooKeeper does what the embedded one does."""

from collections.abc import Callable

import pytest
from harness.tree_suite import Reopen, TreeSuite

from kafkapy.metadata.tree import Tree


@pytest.fixture
def reopened(open_tree: Callable[[], Tree]) -> Reopen:
    def reopen(tree: Tree) -> Tree:
        tree.close()
        return open_tree()

    return reopen


class TestZooKeeperTree(TreeSuite):
    pass
