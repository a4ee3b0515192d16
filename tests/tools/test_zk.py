"""`kafkapy zk` on a broker's embedded metadata. The tests with ZooKeeper are in tests/zookeeper."""

import json

import pytest

from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Create, Set


@pytest.fixture
def home(tmp_path):
    """Return a log directory with a small metadata tree."""
    tree = LocalTree(tmp_path / FILE_NAME)
    tree.ensure("/brokers/topics/t", "/config")
    tree.commit([Set("/brokers/topics/t", b'{"partitions":{"0":[1]}}'), Create("/config/a", b"plain \xff")])
    tree.close()
    return tmp_path


def test_the_names_below_a_node(kafkapy, home):
    assert kafkapy("zk", "ls", "-d", home) == (0, "brokers\nconfig\n", "")
    assert kafkapy("zk", "ls", "/brokers/topics", "-d", home).out == "t\n"
    assert kafkapy("zk", "ls", "/config/a", "-d", home) == (0, "", "")
    assert json.loads(kafkapy("zk", "ls", "-d", home, "--json").out) == ["brokers", "config"]


def test_get_shows_the_data_of_a_node(kafkapy, home):
    assert kafkapy("zk", "get", "/brokers/topics/t", "-d", home).out == '{"partitions":{"0":[1]}}\n'
    assert kafkapy("zk", "get", "/config/a", "-d", home).out == "plain \\xff\n"
    found = json.loads(kafkapy("zk", "get", "/brokers/topics/t", "-d", home, "--json").out)
    assert found.pop("created") < found.pop("changed")
    assert found == {
        "path": "/brokers/topics/t",
        "data": {"partitions": {"0": [1]}},
        "version": 1,
        "ephemeral": False,
        "children": 0,
    }


def test_a_node_and_all_below_it(kafkapy, home):
    assert kafkapy("zk", "tree", "-d", home).out == "/\n  brokers\n    topics\n      t\n  config\n    a\n"
    assert kafkapy("zk", "tree", "/config", "--data", "-d", home).out == "/config\n  a  plain \\xff\n"
    nodes = json.loads(kafkapy("zk", "tree", "/brokers", "-d", home, "--json").out)
    assert [node["path"] for node in nodes] == ["/brokers", "/brokers/topics", "/brokers/topics/t"]
    assert nodes[0]["data"] is None


def test_the_directory_may_come_from_the_brokers_properties(kafkapy, home):
    (home / "server.properties").write_text(f"log.dirs={home}\n")
    assert kafkapy("zk", "ls", "--command-config", home / "server.properties").out == "brokers\nconfig\n"


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (1, ["ls", "/brokers/x/y"], "There is no node /brokers/x/y; the nearest that exists is /brokers."),
        (1, ["get", "/x"], "There is no node /x; the nearest that exists is /."),
        (2, ["ls", "brokers"], "'brokers' is not the path of a node: it begins with / and does not end with one."),
        (2, ["ls", "--zookeeper", "a:1"], "say one place: --zookeeper or --directory, not both."),
        (2, ["export"], "say which ZooKeeper: --zookeeper HOST:PORT/CHROOT, or a --command-config that sets it."),
        (
            2,
            ["export", "-z", "a:b"],
            "--zookeeper: zookeeper.connect=a:b: must be HOST:PORT with commas between (a:b is not).",
        ),
    ],
)
def test_wrong_arguments_are_reported(kafkapy, home, code, words, says):
    assert kafkapy("zk", *words, "-d", home) == (code, "", f"kafkapy: {says}\n")


def test_a_directory_or_a_zookeeper_must_be_given(kafkapy, tmp_path):
    result = kafkapy("zk", "ls")
    assert (result.code, "--zookeeper HOST:PORT/CHROOT or --directory" in result.err) == (2, True)
    result = kafkapy("zk", "ls", "-d", tmp_path)
    assert (result.code, "has no tree of its own (kafkapy-metadata.db)" in result.err) == (1, True)
    assert not list(tmp_path.iterdir())
    result = kafkapy("zk", "ls", "--command-config", tmp_path / "none")
    assert (result.code, "cannot be read: No such file" in result.err) == (1, True)


@pytest.mark.parametrize("words", [("zk", "ls"), ("topics", "list"), ("groups", "list")], ids=" ".join)
def test_a_restriction_of_the_tls_to_zookeeper_is_refused_as_at_a_broker_s_start(kafkapy, tmp_path, words):
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.ssl.enabled.protocols=TLSv1.3\nzookeeper.ssl.crl.enable=false\nsasl.new.in.kafka=1\n")
    assert kafkapy(*words, "--zookeeper", "127.0.0.1:1/kafka", "--command-config", file) == (
        1,
        "",
        "kafkapy: zookeeper.ssl.enabled.protocols=TLSv1.3: the TLS of connections to ZooKeeper cannot be restricted in "
        "this way; remove it if that is acceptable.\n",
    )


def test_the_metadata_of_a_running_broker_cannot_be_opened(kafkapy, kafkapy_broker):
    result = kafkapy("zk", "ls", "-d", kafkapy_broker.log_dir)
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("is in use by a running broker: stop it first.\n")
