"""Kafka's own tools of the 2.x line, which write to ZooKeeper and nowhere else (--zookeeper went with Kafka 3.0)."""

import json
import subprocess

import pytest
from harness import toolchain
from harness.brokers import KAFKA_POM
from harness.zookeeper import SESSION_MS, eventually

from kafkapy.metadata.tree import Tree
from kafkapy.server.broker import BrokerServer
from tests.zookeeper.conftest import Start

VERSION = "2.8.2"


@pytest.fixture
def server(start: Start) -> BrokerServer:
    return start(zookeeper_session_timeout_ms=str(5 * SESSION_MS))


def run(tool: str, *arguments: str) -> str:
    classpath = toolchain.maven_classpath(KAFKA_POM, VERSION)
    java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
    done = subprocess.run([*java, tool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_topics_are_made_grown_set_and_deleted_through_zookeeper(
    server: BrokerServer, connect: str, tree: Tree
) -> None:
    replicas = server.services.replicas
    topics = "kafka.admin.TopicCommand"
    zookeeper = ("--zookeeper", connect)
    made = ("--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1")
    run(topics, *zookeeper, *made, "--config", "segment.bytes=4096")
    eventually(lambda: replicas.holds("t", 1), what="the topic is not led")
    assert "topic_id" in json.loads(tree.get("/brokers/topics/t").data)

    run(topics, *zookeeper, "--alter", "--topic", "t", "--partitions", "3")
    eventually(lambda: replicas.holds("t", 2), what="the new partition is not led")

    run(topics, *zookeeper, "--delete", "--topic", "t")
    eventually(lambda: not tree.exists("/brokers/topics/t"), what="the topic is not deleted")
    assert not replicas.holds("t", 0)
