"""Tools of Kafka 2.x that write only to ZooKeeper (Kafka 3.0 removed --zookeeper) work with a broker."""

import json
from pathlib import Path

import pytest

from kafkapy.metadata.tree import Tree
from kafkapy.server.broker import BrokerServer
from tests.harness.kafka_tools import run_old_tool
from tests.harness.waiting import eventually
from tests.harness.zookeeper import SESSION_MS
from tests.zookeeper.conftest import Start


@pytest.fixture
def server(start: Start) -> BrokerServer:
    return start(zookeeper_session_timeout_ms=str(5 * SESSION_MS))


def test_topics_are_created_extended_configured_and_deleted_through_zookeeper(
    server: BrokerServer, connect: str, tree: Tree
) -> None:
    replicas = server.services.replicas
    topics = "kafka.admin.TopicCommand"
    zookeeper = ("--zookeeper", connect)
    creation = ("--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1")
    run_old_tool(topics, *zookeeper, *creation, "--config", "segment.bytes=4096")
    eventually(lambda: replicas.holds("t", 1), what="the topic is not led")
    eventually(lambda: tree.exists("/brokers/topics/t"))
    eventually(lambda: "topic_id" in json.loads(tree.get("/brokers/topics/t").data), what="it has no id")

    run_old_tool(topics, *zookeeper, "--alter", "--topic", "t", "--partitions", "3")
    eventually(lambda: replicas.holds("t", 2), what="the new partition is not led")

    run_old_tool(topics, *zookeeper, "--delete", "--topic", "t")
    eventually(lambda: not tree.exists("/brokers/topics/t"), what="the topic is not deleted")
    assert not replicas.holds("t", 0)


def test_partitions_are_reassigned_through_zookeeper_and_through_the_broker(
    server: BrokerServer, connect: str, tree: Tree, tmp_path: Path
) -> None:
    """The plan assigns the partitions to the broker that has them, the only plan for a cluster of one broker."""
    server.services.controller.create("t", partitions=2)
    plan = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": index, "replicas": [0]} for index in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    tool = "kafka.admin.ReassignPartitionsCommand"
    file = ("--reassignment-json-file", str(plan))
    broker = ("--bootstrap-server", server.bootstrap_servers)
    assert "Successfully started partition reassignments for t-0,t-1" in run_old_tool(
        tool, "--zookeeper", connect, *file, "--execute"
    )
    eventually(lambda: not tree.exists("/admin/reassign_partitions"), what="the request is not answered")
    assert "Successfully started partition reassignments for t-0,t-1" in run_old_tool(tool, *broker, *file, "--execute")
    assert "Reassignment of partition t-1 is complete." in run_old_tool(tool, *broker, *file, "--verify")
