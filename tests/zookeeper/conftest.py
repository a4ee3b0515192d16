"""A ZooKeeper server for all tests here, and a chroot of its own for each."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.metadata.keeper_client import KeeperSettings
from kafkapy.metadata.tree import Tree
from kafkapy.metadata.zookeeper import ZooKeeperTree

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.zookeeper import SESSION_MS, ZooKeeper

OpenTree = Callable[..., ZooKeeperTree]


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


_CHROOTS = iter(range(1_000_000))


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> str:
    """The server with a chroot that is not there yet."""
    return f"{zookeeper.address}/kafka/{next(_CHROOTS)}"


@pytest.fixture
def open_tree(connect: str) -> Iterator[OpenTree]:
    """Opens the tree, again and again; closes what is open at the end."""
    opened: list[Tree] = []

    def opener(
        where: str = connect, *, session_timeout_ms: int = SESSION_MS, connection_timeout_ms: int = 10_000
    ) -> ZooKeeperTree:
        tree = ZooKeeperTree(KeeperSettings(where, session_timeout_ms, connection_timeout_ms))
        opened.append(tree)
        return tree

    yield opener
    for tree in opened:
        tree.close()


@pytest.fixture
def tree(open_tree: OpenTree) -> ZooKeeperTree:
    return open_tree()
