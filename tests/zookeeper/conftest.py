"""Fixtures: a ZooKeeper server for all tests of this folder, a chroot for each test, and brokers that use them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafkapy.metadata.tree import Tree
from kafkapy.metadata.zookeeper.client import ZooKeeperSettings
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.broker_07 import KINDS, AnyBroker07, start_broker_07
from tests.harness.golden_07 import GOLDEN_07
from tests.harness.zookeeper import PATIENT_MS, SESSION_MS, ZooKeeper

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
    """Return the server's address with a chroot that does not exist."""
    return f"{zookeeper.address}/kafka/{next(_CHROOTS)}"


@pytest.fixture
def open_tree(connect: str) -> Iterator[OpenTree]:
    """Return a function that opens a new tree. As with `start`, only the session of a tree opened through another
    address (`where`) expires soon. All trees are closed at the end."""
    opened: list[Tree] = []

    def opener(
        where: str = connect, *, session_timeout_ms: int | None = None, connection_timeout_ms: int = 10_000
    ) -> ZooKeeperTree:
        session_ms = session_timeout_ms or (PATIENT_MS if where == connect else SESSION_MS)
        tree = ZooKeeperTree(ZooKeeperSettings(where, session_ms, connection_timeout_ms))
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
    """Return a function that starts a broker in this process. Each id has its own directory. Settings are given as
    `log_dirs="..."`.

    The session expires soon only if the broker reaches ZooKeeper through another address (`where`), such as that of a
    proxy. Other sessions must not expire because the machine is busy.
    """
    running: list[BrokerServer] = []

    def starter(broker_id: int = 0, where: str = connect, on_failure: Any = None, **settings: str) -> BrokerServer:
        config = BrokerConfig(
            {
                "broker.id": str(broker_id),
                "log.dirs": str(tmp_path / str(broker_id)),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "zookeeper.connect": where,
                "zookeeper.session.timeout.ms": str(PATIENT_MS if where == connect else SESSION_MS),
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


@pytest.fixture
def zk(zookeeper: ZooKeeper, connect: str) -> Iterator[KazooClient]:
    """Create the chroot, and return a client that uses it."""
    chroot = connect.partition("/")[2]
    client = KazooClient(zookeeper.address)
    client.start()
    client.ensure_path(chroot)
    client.chroot = f"/{chroot}"
    yield client
    client.stop()
    client.close()


@pytest.fixture
def data_07(tmp_path: Path) -> Path:
    """Return a copy of log directories of Kafka 0.7.2, for a broker that writes to them."""
    return Path(shutil.copytree(GOLDEN_07 / "data", tmp_path / "kafka-0.7"))


@pytest.fixture(params=KINDS)
def broker_07(zk: KazooClient, connect: str, data_07: Path, request: pytest.FixtureRequest) -> Iterator[AnyBroker07]:
    """Start a broker of Kafka 0.7 with two partitions each of the topics `two-partitions` and `sent`."""
    broker = start_broker_07(data_07, connect, {"two-partitions": 2, "sent": 2}, kind=request.param)
    yield broker
    broker.stop()
