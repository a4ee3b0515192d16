"""`kafkapy zk export` and `import` move a broker's metadata into ZooKeeper and back, completely or not at all."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.transfer import persistent_nodes
from kafkapy.metadata.tree import Create, Delete, Operation, Set, Tree, TreeUnavailable, wait
from kafkapy.metadata.zookeeper.client import ZooKeeperSettings
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.metadata_store import StartError
from kafkapy.server.relocation import to_zookeeper
from kafkapy.server.unadopted import EXPORTED
from kafkapy.tools.main import main
from tests.harness.brokers import QUICK, KafkaBroker, KafkapyBroker
from tests.harness.records import committed, consume, create, produce
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper

Call = Callable[..., tuple[int, str, str]]
SETTINGS = {
    **QUICK,
    "broker.id": "3",
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture
def zk(capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs `kafkapy zk ...` and returns exit code, output and error output."""

    def call(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["zk", *map(str, words)])
        return (code, *capfd.readouterr())

    return call


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the log directory of a stopped broker with embedded metadata and one topic."""
    directory = tmp_path / "home"
    server = BrokerServer(BrokerConfig(settings(directory)))
    server.start()
    server.services.controller.create("t", partitions=2, overrides={"segment.bytes": "4096"})
    server.stop()
    return directory


def settings(directory: Path, **more: str) -> dict[str, str]:
    return {
        "broker.id": "3",
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def nodes_of(path: Path) -> dict[str, Any]:
    tree = LocalTree(path)
    try:
        return dict(persistent_nodes(tree))
    finally:
        tree.close()


def test_a_broker_moves_into_an_ensemble_and_apache_kafka_serves_it_and_it_moves_back(
    zookeeper: ZooKeeper, connect: str, tmp_path: Path, zk: Call
) -> None:
    data = tmp_path / "data"
    values = [f"v{number}" for number in range(200)]
    ours = KafkapyBroker(tmp_path, SETTINGS)
    create(ours.bootstrap, NewTopic("t", 3, 1, config={"segment.bytes": "100000"}))
    produce(ours.bootstrap, "t", values[:50], **{"transactional.id": "tx"})
    assert consume(ours.bootstrap, "t", "g", 50) == sorted(values[:50])
    ours.stop()

    code, out, err = zk("export", "-d", data, "-z", connect)
    assert (code, err) == (0, "")
    assert "with 3 topics (" in out
    assert not (data / FILE_NAME).exists()

    kafka = KafkaBroker(tmp_path, SETTINGS, zookeeper=connect)
    try:
        assert committed(kafka.bootstrap, "g", "t", 3) >= 50
        assert consume(kafka.bootstrap, "t", "all", 50) == sorted(values[:50])
        produce(kafka.bootstrap, "t", values[50:100], **{"transactional.id": "tx"})
        assert main(["topics", "create", "theirs", "-p", "1", "-r", "1", "-z", connect]) == 0
        assert main(["topics", "alter", "theirs", "-p", "2", "-z", connect]) == 0
        produce(kafka.bootstrap, "theirs", values)
    finally:
        kafka.stop()

    ours = KafkapyBroker(tmp_path, {**SETTINGS, "zookeeper.connect": connect})
    assert consume(ours.bootstrap, "t", "g", 50) == sorted(values[50:100])
    produce(ours.bootstrap, "t", values[100:150], **{"transactional.id": "tx"})
    ours.stop()

    code, out, err = zk("import", "-z", connect, "-d", data)
    assert (code, err) == (0, "")
    assert not (data / EXPORTED).exists()
    ours = KafkapyBroker(tmp_path, SETTINGS)
    try:
        assert consume(ours.bootstrap, "t", "g", 50) == sorted(values[100:150])
        assert consume(ours.bootstrap, "theirs", "g2", 200) == sorted(values)
        produce(ours.bootstrap, "t", values[150:], **{"transactional.id": "tx"})
        assert consume(ours.bootstrap, "t", "everything", 200) == sorted(values)
    finally:
        ours.stop()


def test_an_export_and_an_import_give_the_same_tree(home: Path, connect: str, zk: Call, open_tree: Any) -> None:
    before = nodes_of(home / FILE_NAME)
    assert zk("export", "-d", home, "-z", connect)[0] == 0
    tree = open_tree()
    assert dict(persistent_nodes(tree)) == before
    tree.close()
    with pytest.raises(StartError, match="bring it back with `kafkapy zk import`"):
        BrokerServer(BrokerConfig(settings(home))).start()
    assert zk("import", "-d", home, "-z", connect)[0] == 0
    assert nodes_of(home / FILE_NAME) == before


def test_a_dry_run_changes_nothing(home: Path, connect: str, zk: Call, zookeeper: ZooKeeper) -> None:
    code, out, _ = zk("export", "-d", home, "-z", connect, "--dry-run")
    assert code == 0
    assert out.endswith("Nothing was changed.\n")
    assert (home / FILE_NAME).exists()
    code, _, err = zk("ls", "-z", connect)
    assert (code, err) == (
        1,
        f"kafkapy: the chroot {connect[connect.index('/') :]} does not exist in ZooKeeper at {zookeeper.address}.\n",
    )

    assert zk("export", "-d", home, "-z", connect)[0] == 0
    code, out, _ = zk("import", "-d", home, "-z", connect, "--dry-run", "--json")
    found = json.loads(out)
    assert (code, found["moved"], found["topics"]) == (0, False, ["t"])
    assert not (home / FILE_NAME).exists()


def test_the_brokers_properties_name_the_directory_and_zookeeper(
    home: Path, connect: str, zk: Call, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=3\nlog.dirs={home},{tmp_path / 'more'}\nzookeeper.connect={connect}\n")
    assert zk("export", "--command-config", file)[0] == 0
    assert zk("ls", "/brokers/topics", "--command-config", file) == (0, "t\n", "")
    assert zk("import", "--command-config", file)[0] == 0
    assert zk("ls", "/brokers/topics", "-d", home) == (0, "t\n", "")


class Killed(Exception):
    """Raised in place of a kill. No code under test catches it."""


@pytest.mark.parametrize("last", [False, True], ids=["in the middle", "before the directory is marked"])
def test_an_interrupted_export_is_reported_and_a_second_one_completes_it(
    home: Path, connect: str, zk: Call, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    before = nodes_of(home / FILE_NAME)
    commit = ZooKeeperTree.commit

    def commit_and_die(self: ZooKeeperTree, operations: list[Operation]) -> list[Any]:
        results = commit(self, operations)
        if (paths.CLUSTER_ID in {operation.path for operation in operations}) == last:
            raise Killed
        return results

    monkeypatch.setattr(ZooKeeperTree, "commit", commit_and_die)
    with pytest.raises(Killed):
        to_zookeeper(home, ZooKeeperSettings(connect))
    monkeypatch.undo()
    assert nodes_of(home / FILE_NAME) == before  # the broker's metadata is still embedded
    with pytest.raises(StartError, match="move it there with `kafkapy zk export`"):
        BrokerServer(BrokerConfig(settings(home, zookeeper_connect=connect))).start()

    code, out, _ = zk("export", "-d", home, "-z", connect)
    assert code == 0
    assert ("is in ZooKeeper at" if last else "An interrupted attempt has left") in out
    server = BrokerServer(BrokerConfig(settings(home, zookeeper_connect=connect)))
    server.start()
    try:
        assert server.wait_until_loaded(30)
        assert server.services.replicas.holds("t", 1)
    finally:
        server.stop()


def test_a_failure_half_way_says_that_the_broker_is_as_before(
    home: Path, connect: str, zk: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ZooKeeperTree, operations: list[Operation]) -> list[Any]:
        raise TreeUnavailable("/", "ZooKeeper has not answered for 18 s")

    monkeypatch.setattr(ZooKeeperTree, "commit", fail)
    code, _, err = zk("export", "-d", home, "-z", connect)
    assert code == 1
    assert "only in part" in err
    assert "has not answered for 18 s" in err
    assert (home / FILE_NAME).exists()


def test_existing_metadata_is_replaced_only_with_overwrite(home: Path, connect: str, zk: Call, tree: Tree) -> None:
    cluster = ClusterRegistry(tree)
    other = cluster.ensure_cluster_id()
    wait(TopicRegistry(tree).create, "old", {0: [3]}, {})
    code, _, err = zk("export", "-d", home, "-z", connect)
    assert code == 1
    assert f"holds cluster {other} already" in err
    assert "--overwrite" in err
    code, out, _ = zk("export", "-d", home, "-z", connect, "--overwrite", "--dry-run")
    assert "Would remove /brokers/topics/old" in out
    assert zk("export", "-d", home, "-z", connect, "--overwrite")[0] == 0
    eventually(lambda: not tree.exists("/brokers/topics/old"))

    new_tree = LocalTree(home / FILE_NAME)
    new_tree.ensure("/brokers/topics")
    new_tree.close()
    assert zk("import", "-d", home, "-z", connect)[0] == 1
    assert zk("import", "-d", home, "-z", connect, "--overwrite")[0] == 0
    assert "/brokers/topics/t" in nodes_of(home / FILE_NAME)


def test_a_running_broker_is_not_moved(home: Path, connect: str, zk: Call) -> None:
    server = BrokerServer(BrokerConfig(settings(home)))
    server.start()
    try:
        code, _, err = zk("export", "-d", home, "-z", connect)
        assert (code, err) == (1, f"kafkapy: {home} is in use by a running broker: stop it first.\n")
    finally:
        server.stop()
    assert zk("export", "-d", home, "-z", connect)[0] == 0
    server = BrokerServer(BrokerConfig(settings(home, zookeeper_connect=connect)))
    server.start()
    try:
        code, _, err = zk("import", "-d", home, "-z", connect)
        assert code == 1
        assert "broker 3 is registered" in err
    finally:
        server.stop()
    assert zk("import", "-d", home, "-z", connect)[0] == 0


def test_only_the_brokers_own_metadata_is_imported_into_its_directory(
    home: Path, connect: str, zk: Call, tree: Tree, tmp_path: Path
) -> None:
    code, _, err = zk("import", "-d", tmp_path, "-z", connect)
    assert code == 1
    assert "does not say which broker it belongs to (meta.properties)" in err
    code, _, err = zk("import", "-d", home, "-z", connect)
    assert code == 1
    assert "there is no cluster in ZooKeeper at" in err
    tree.ensure("/cluster")
    tree.commit([Create(paths.CLUSTER_ID, b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}')])
    code, _, err = zk("import", "-d", home, "-z", connect)
    assert code == 1
    assert "is cluster AAAAAAAAAAAAAAAAAAAAAA" in err
    tree.commit([Set(paths.CLUSTER_ID, b"{")])
    for command in ("import", "export"):
        code, _, err = zk(command, "-d", home, "-z", connect)
        assert (code, "the metadata at /cluster/id is not JSON" in err) == (1, True)
    tree.commit([Delete(paths.CLUSTER_ID)])
    assert zk("export", "-d", home, "-z", connect, "--overwrite")[0] == 0
    tree.commit([Set("/brokers/topics/t", b'{"partitions":{"0":[3],"1":[3,4]}}')])
    code, _, err = zk("import", "-d", home, "-z", connect)
    assert code == 1
    assert "topic t has replicas on other brokers (4)" in err


def test_an_import_is_refused_if_some_nodes_may_not_be_read(
    home: Path, connect: str, zk: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert zk("export", "-d", home, "-z", connect)[0] == 0
    monkeypatch.setattr(ZooKeeperTree, "hidden", ["/config/brokers"])
    code, _, err = zk("import", "-d", home, "-z", connect)
    assert code == 1
    assert "/config/brokers in ZooKeeper" in err
    assert not (home / FILE_NAME).exists()


def test_a_second_export_or_import_says_that_everything_is_there_already(
    home: Path, connect: str, zk: Call, tree: Tree
) -> None:
    for word in ("export", "import"):
        assert zk(word, "-d", home, "-z", connect)[0] == 0
        code, out, err = zk(word, "-d", home, "-z", connect)
        assert (code, err) == (0, "")
        assert re.match(r"All of cluster \S+ with 1 topic \(\d+ nodes\) is in .* already\.\n", out)


def test_a_second_export_after_a_broker_has_run_in_zookeeper_changes_nothing(
    home: Path, connect: str, zk: Call, tree: Tree
) -> None:
    assert zk("export", "-d", home, "-z", connect)[0] == 0
    eventually(lambda: tree.exists(paths.CLUSTER_ID))  # the export writes it last
    wait(TopicRegistry(tree).create, "later", {0: [3]}, {})
    code, out, _ = zk("export", "-d", home, "-z", connect)
    assert code == 0
    assert "with 2 topics" in out
    assert not (home / FILE_NAME).exists()


def test_a_second_export_to_another_place_says_that_the_metadata_is_not_there(
    home: Path, connect: str, zk: Call
) -> None:
    assert zk("export", "-d", home, "-z", connect)[0] == 0
    code, _, err = zk("export", "-d", home, "-z", f"{connect}/elsewhere")
    assert code == 1
    assert "was moved to ZooKeeper before" in err
    assert f"at {connect}/elsewhere is no cluster, not " in err


def test_after_a_killed_export_and_a_start_of_the_broker_an_export_needs_overwrite(
    home: Path, connect: str, zk: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ZooKeeperTree.commit

    def commit_and_die(self: ZooKeeperTree, operations: list[Operation]) -> list[Any]:
        commit(self, operations)
        raise Killed

    monkeypatch.setattr(ZooKeeperTree, "commit", commit_and_die)
    with pytest.raises(Killed):
        to_zookeeper(home, ZooKeeperSettings(connect))
    monkeypatch.undo()
    server = BrokerServer(BrokerConfig(settings(home)))
    server.start()
    server.services.controller.delete("t")
    server.stop()
    code, _, err = zk("export", "-d", home, "-z", connect)
    assert code == 1
    assert "holds other nodes already" in err
    assert "--overwrite" in err
    assert zk("export", "-d", home, "-z", connect, "--overwrite")[0] == 0
    assert (home / EXPORTED).exists()
