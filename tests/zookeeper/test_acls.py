"""ACLs in ZooKeeper: those that Apache Kafka 3.9.1 stores apply in kafkapy, and the reverse. All brokers obey them."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.tree import Set, Tree, wait
from kafkapy.protocol.apis import METADATA
from kafkapy.security.acls.bindings import CLUSTER_NAME, Binding, Entry, Pattern
from tests.harness.brokers import QUICK, KafkaBroker, free_port
from tests.harness.kafka_tools import KafkaTools
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.test_acls import create, creation, delete, deletion, described
from tests.zookeeper.conftest import Start

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
NOBODY = "User:ANONYMOUS"
KAFKA, OURS, OTHER = 1, 2, 3


def may_describe(wire: Wire, topic: str) -> bool:
    asked = METADATA.Request(topics=[METADATA.Request.Topics(name=topic)], allow_auto_topic_creation=False)
    (found,) = wire.call(METADATA, 12, asked).topics
    return bool(found.error_code != Errors.TOPIC_AUTHORIZATION_FAILED)


def rights(topic: str = "flights", **fields: Any) -> Any:
    return creation(name=topic, principal=NOBODY, operation="DESCRIBE", **fields)


def hosts_in(tree: Tree, topic: str) -> list[str]:
    return sorted(one["host"] for one in json.loads(tree.get(f"/kafka-acl/Topic/{topic}").data)["acls"])


@pytest.mark.other_runtime
def test_acls_apply_on_kafka_and_here_whoever_stores_them(
    start: Start, connect: str, tree: Tree, tools: KafkaTools, tmp_path: Path
) -> None:
    # Allow all before a broker runs: brokers need ClusterAction on the cluster, and the test needs Alter.
    said = tools.run(
        "kafka.admin.AclCommand", "--authorizer-properties", f"zookeeper.connect={connect}", "--add",
        "--allow-principal", NOBODY, "--cluster", "--operation", "All",
    )  # fmt: skip
    assert said.code == 0, said
    port = free_port()
    settings = {
        **QUICK,
        "broker.id": str(KAFKA),
        "authorizer.class.name": AUTHORIZER,
        "zookeeper.session.timeout.ms": "20000",
    }
    kafka = KafkaBroker(tmp_path / "kafka", settings, port=port, zookeeper=connect)
    try:
        server = start(OURS, authorizer_class_name=AUTHORIZER, zookeeper_session_timeout_ms="20000")
        with Wire(kafka.bootstrap) as theirs, Wire(server.bootstrap_servers) as ours:
            for here, there in ((theirs, ours), (ours, theirs)):
                prefixed = {"pattern_type": "PREFIXED"}
                assert not may_describe(there, "flights")
                assert create(here, rights(), rights("fl", permission="DENY", **prefixed)) == [(Errors.NONE, "")] * 2
                eventually(lambda there=there: len(described(there, "TOPIC")) == 2)
                assert sorted(described(here)) == sorted(described(there))
                assert not may_describe(there, "flights")  # the DENY rule wins
                assert delete(here, deletion("TOPIC", "fl", "PREFIXED"))[0][:2] == (0, None)
                eventually(lambda there=there: may_describe(there, "flights"))
                assert may_describe(here, "flights")
                # Both brokers change the same node, each with the node's version.
                assert create(there, rights(host="10.0.0.1")) == [(Errors.NONE, "")]
                assert create(here, rights(host="10.0.0.2")) == [(Errors.NONE, "")]
                eventually(lambda: hosts_in(tree, "flights") == ["*", "10.0.0.1", "10.0.0.2"])
                assert len(delete(there, deletion("TOPIC", "flights", "LITERAL"))[0][2]) == 3
                eventually(lambda here=here: not may_describe(here, "flights"))
                eventually(lambda: not tree.exists("/kafka-acl/Topic/flights"))
    finally:
        kafka.stop()


def test_all_brokers_follow_a_change_and_half_written_nodes_close_their_topic(
    start: Start, tree: Tree, caplog: Any
) -> None:
    closed = {"authorizer_class_name": AUTHORIZER, "super_users": "User:admin"}
    one = start(OURS, **closed)
    acls = one.services.authorizer._acls  # type: ignore[union-attr]
    cluster = Binding(Pattern("CLUSTER", CLUSTER_NAME), Entry(NOBODY, "*", "CLUSTER_ACTION", "ALLOW"))
    assert wait(acls.create, [cluster]) == [None]
    caplog.clear()
    other = start(OTHER, **closed)
    assert "will refuse" not in caplog.text
    with Wire(other.bootstrap_servers) as wire:
        asked = [Binding(Pattern("TOPIC", f"t{number}"), Entry(NOBODY, "*", "READ", "ALLOW")) for number in range(50)]
        assert wait(acls.create, asked) == [None] * 50
        eventually(lambda: all(may_describe(wire, f"t{number}") for number in range(50)))
        eventually(lambda: tree.exists("/kafka-acl/Topic/t7"))
        whole = tree.get("/kafka-acl/Topic/t7").data
        tree.commit([Set("/kafka-acl/Topic/t7", whole[:-5])])
        eventually(lambda: not may_describe(wire, "t7"))
        tree.commit([Set("/kafka-acl/Topic/t7", whole)])
        eventually(lambda: may_describe(wire, "t7"))
        assert may_describe(wire, "t8")


def test_a_broker_that_other_brokers_would_refuse_warns_at_the_start(start: Start, caplog: Any) -> None:
    start(OURS, authorizer_class_name=AUTHORIZER, super_users="User:broker")
    (line,) = [one.getMessage() for one in caplog.records if "will refuse" in one.getMessage()]
    assert "it is User:ANONYMOUS, which is neither among super.users nor allowed ClusterAction" in line


def test_a_broker_without_an_authorizer_neither_creates_nor_keeps_nodes_of_acls(start: Start, tree: Tree) -> None:
    server = start(OURS)
    eventually(lambda: tree.exists("/config/changes"))
    assert not tree.exists("/kafka-acl")
    tree.ensure("/kafka-acl/Topic/flights")
    tree.ensure("/config/clients/later")
    seen = server._tree
    assert seen is not None
    eventually(lambda: seen.exists("/config/clients/later"))
    assert not seen.exists("/kafka-acl/Topic/flights")
