"""A ZooKeeper server for all tests here, a chroot of its own for each, and brokers that live there."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.metadata.keeper_client import KeeperSettings
from kafkapy.metadata.tree import Tree
from kafkapy.metadata.zookeeper import ZooKeeperTree
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config import BrokerConfig

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.zookeeper import SESSION_MS, ZooKeeper

OpenTree = Callable[..., ZooKeeperTree]
Start = Callable[..., BrokerServer]


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


@pytest.fixture
def start(connect: str, tmp_path: Path) -> Iterator[Start]:
    """Starts brokers in this process, each id with a directory of its own; settings as `log_dirs="..."`."""
    running: list[BrokerServer] = []

    def starter(broker_id: int = 0, where: str = connect, on_failure: Any = None, **settings: str) -> BrokerServer:
        config = BrokerConfig(
            {
                "broker.id": str(broker_id),
                "log.dirs": str(tmp_path / str(broker_id)),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "zookeeper.connect": where,
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        server = BrokerServer(config, on_failure=on_failure)
        server.start()
        running.append(server)
        assert server.wait_until_loaded(30)
        return server

    yield starter
    for server in running:
        server.stop()
