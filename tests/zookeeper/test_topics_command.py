"""`kafkapy topics --zookeeper` lists, creates, describes, alters and deletes topics by their nodes alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.configs import encode_settings
from kafkapy.metadata.tree import Create, Operation, Set, Tree
from kafkapy.server.broker import BrokerServer
from kafkapy.tools.main import main
from kafkapy.tools.topics.zookeeper import ZooKeeperTopics
from tests.harness.waiting import eventually
from tests.harness.zookeeper import SESSION_MS
from tests.zookeeper.conftest import Start

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topics(capfd: pytest.CaptureFixture[str], connect: str) -> Call:
    """Return a function that runs `kafkapy topics ... --zookeeper` and returns exit code, output and error output."""

    def call(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["topics", *map(str, words), "--zookeeper", connect])
        return (code, *capfd.readouterr())

    return call


@pytest.fixture
def server(start: Start) -> BrokerServer:
    return start(zookeeper_session_timeout_ms=str(5 * SESSION_MS))


def test_a_running_broker_follows_the_written_nodes(server: BrokerServer, topics: Call, tree: Tree) -> None:
    replicas = server.services.replicas
    creation = topics("create", "t", "-p", 2, "-r", 1, "--config", "segment.bytes=4096")
    assert creation == (0, "Created topic t with 2 partitions.\n", "")
    eventually(lambda: replicas.holds("t", 1), what="the topic is not led")
    eventually(lambda: tree.exists("/brokers/topics/t"))
    eventually(lambda: "topic_id" in json.loads(tree.get("/brokers/topics/t").data), what="it has no id")

    code, out, err = topics("alter", "t", "-p", 3, "--config", "segment.bytes=8192", "--config", "retention.ms=1")
    assert (code, err) == (0, "")
    assert out == "Changed 2 settings of topic t.\nTopic t has 3 partitions now.\n"
    eventually(lambda: replicas.holds("t", 2), what="the new partition is not led")
    eventually(lambda: getattr(replicas.config_of("t", 0), "segment_bytes", 0) == 8192, what="it is not set")
    assert topics("alter", "t", "--delete-config", "retention.ms")[0] == 0
    eventually(lambda: tree.exists("/brokers/topics/t/partitions/2/state"), what="its leader is not written")

    code, out, _ = topics("describe", "t", "--json")
    (found,) = json.loads(out)
    assert found["configs"] == {"segment.bytes": "8192"}
    assert found["partitions"][2] == {"partition": 2, "leader": 0, "leaderEpoch": 0, "replicas": [0], "isr": [0]}
    _, out, _ = topics("describe")
    assert out.startswith(f"Topic t, id {found['id']}, settings: segment.bytes=8192\npartition  leader")

    deleted = topics("delete", "t")
    assert deleted == (0, "Topic t is marked for deletion: the controller deletes it.\n", "")
    eventually(lambda: not tree.exists("/brokers/topics/t"), what="the topic is not deleted")
    assert not replicas.holds("t", 0)
    assert topics("delete", "t", "--if-exists") == (0, "Topic t is not there.\n", "")


@pytest.fixture
def brokerless(tree: Tree) -> Tree:
    """Return the tree of a cluster that has a topic and no broker."""
    ClusterRegistry(tree)
    data = b'{"version":2,"partitions":{"0":[1],"1":[1]},"adding_replicas":{},"removing_replicas":{}}'
    tree.ensure("/brokers/topics/t/partitions/0")
    state = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":4,"isr":[1]}'
    tree.commit([Set("/brokers/topics/t", data), Create("/brokers/topics/t/partitions/0/state", state)])
    return tree


def test_topics_are_changed_without_a_broker(brokerless: Tree, topics: Call) -> None:
    assert topics("list")[1] == "topic  partitions  replicas  id\nt               2         1\n"
    (found,) = json.loads(topics("describe", "t", "--json")[1])
    assert [one["leader"] for one in found["partitions"]] == [None, None]
    assert [one["leaderEpoch"] for one in found["partitions"]] == [4, None]
    assert topics("alter", "t", "--config", "segment.bytes=4096")[0] == 0
    eventually(lambda: brokerless.exists("/config/topics/t") and brokerless.children("/config/changes"))
    assert json.loads(brokerless.get("/config/topics/t").data) == {"version": 1, "config": {"segment.bytes": "4096"}}
    (note,) = brokerless.children("/config/changes")
    assert json.loads(brokerless.get(f"/config/changes/{note}").data) == {"version": 2, "entity_path": "topics/t"}
    assert topics("delete", "t")[1] == "Topic t is marked for deletion: it is deleted once a broker runs.\n"
    assert topics("delete", "t")[1].startswith("Topic t is marked for deletion already")
    assert "marked for deletion" in topics("list")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "u", "-p", "1", "-r", "1"], "no broker is registered in ZooKeeper"),
        (["alter", "t", "-p", "3"], "no broker is registered in ZooKeeper"),
        (["create", "u"], "needs --partitions and --replication-factor"),
        (["create", "a/b", "-p", "1", "-r", "1"], "the topic name 'a/b'"),
        (["create", "t", "-p", "1", "-r", "1"], "topic t already exists"),
        (["alter", "t", "--config", "segment.byte=1"], "--config segment.byte=1: is not a topic setting"),
        (["alter", "u", "--config", "segment.bytes=4096"], "there is no topic u"),
        (["describe", "u"], "there is no topic u"),
        (["delete", "u"], "there is no topic u"),
        (["list", "-b", "127.0.0.1:9092"], "one of --bootstrap-server and --zookeeper"),
    ],
)
def test_impossible_calls_are_reported(brokerless: Tree, topics: Call, words: list[str], says: str) -> None:
    code, out, err = topics(*words)
    assert (code in (1, 2), out) == (True, "")
    assert says in err
    assert brokerless.children("/brokers/topics") == ["t"]
    assert not brokerless.exists("/config/topics/t")


def test_a_topic_that_cannot_be_parsed_is_named_and_the_others_are_shown(brokerless: Tree, topics: Call) -> None:
    brokerless.commit([Create("/brokers/topics/broken", b"{")])
    code, out, err = topics("list", "--json")
    assert (code, [one["name"] for one in json.loads(out)]) == (0, ["t"])
    assert err.startswith("kafkapy: topic broken is left out: the metadata at /brokers/topics/broken is not JSON")
    assert topics("describe", "broken")[0] == 1


def test_no_partitions_are_added_to_a_topic_that_is_being_moved(brokerless: Tree, topics: Call) -> None:
    asked = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}'
    brokerless.commit([Create("/brokers/ids/1", ephemeral=True), Create("/admin/reassign_partitions", asked)])
    code, _, err = topics("alter", "t", "-p", 3)
    assert (code, "are being moved" in err) == (1, True)


def test_a_concurrent_change_is_kept(brokerless: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller gives the topic an id while the command adds partitions."""
    brokerless.commit([Create("/brokers/ids/1", ephemeral=True)])
    nodes = ZooKeeperTopics(brokerless)
    commit = type(brokerless).commit

    def commit_after_another(tree: Tree, operations: list[Operation]) -> list[Any]:
        monkeypatch.undo()
        commit(
            tree, [Set("/brokers/topics/t", b'{"topic_id":"9YGeHKywTMavGcoCK2BPBg","partitions":{"0":[1],"1":[1]}}')]
        )
        return commit(tree, operations)

    monkeypatch.setattr(type(brokerless), "commit", commit_after_another)
    nodes.add_partitions("t", 3)
    found = json.loads(brokerless.get("/brokers/topics/t").data)
    assert found == {"topic_id": "9YGeHKywTMavGcoCK2BPBg", "partitions": {"0": [1], "1": [1], "2": [1]}}


@pytest.mark.parametrize("before", [None, {"flush.ms": "1"}], ids=["new", "old"])
def test_a_setting_that_is_changed_at_the_same_time_is_kept(
    brokerless: Tree, monkeypatch: pytest.MonkeyPatch, before: dict[str, str] | None
) -> None:
    path, theirs = "/config/topics/t", encode_settings({"retention.ms": "2"})
    if before is not None:
        brokerless.commit([Create(path, encode_settings(before))])
    nodes = ZooKeeperTopics(brokerless)
    commit = type(brokerless).commit

    def commit_after_another(tree: Tree, operations: list[Operation]) -> list[Any]:
        monkeypatch.undo()
        commit(tree, [Create(path, theirs) if before is None else Set(path, theirs)])
        return commit(tree, operations)

    monkeypatch.setattr(type(brokerless), "commit", commit_after_another)
    nodes.alter_settings("t", {"segment.bytes": "4096"}, [])
    assert json.loads(brokerless.get(path).data)["config"] == {"retention.ms": "2", "segment.bytes": "4096"}


def test_internal_topics_are_left_to_the_brokers(brokerless: Tree, topics: Call) -> None:
    brokerless.commit([Create("/brokers/topics/__consumer_offsets", b'{"partitions":{"0":[1]}}')])
    assert topics("delete", "__consumer_offsets")[0] == 1
    assert topics("alter", "__consumer_offsets", "-p", 2)[0] == 1
    assert not brokerless.children("/admin/delete_topics")


def test_no_cluster_is_created_at_an_empty_path(topics: Call, open_tree: Callable[..., Tree]) -> None:
    code, _, err = topics("list")
    assert (code, err.startswith("kafkapy: the chroot /kafka/")) == (1, True)
    tree = open_tree()
    code, _, err = topics("list")
    assert (code, "is the chroot of the cluster missing" in err) == (1, True)
    assert tree.children("/") == []
