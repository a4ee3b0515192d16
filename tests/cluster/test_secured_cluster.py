"""Clusters whose brokers use TLS and SASL between each other."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import kafkapy
from kafkapy.client import Admin, Consumer, GroupConsumer, NewTopic, RecordProducer, TransactionalProducer
from kafkapy.tools.main import main
from tests.harness import brokers
from tests.harness.certificates import Pki
from tests.harness.zookeeper import ZooKeeper, eventually, jars_in

pytestmark = pytest.mark.other_runtime
USERS = {"alice": "alice-secret"}
SESSION_MS = 3000


@pytest.fixture(scope="module")
def jars(tmp_path_factory):
    return jars_in(tmp_path_factory.mktemp("jars") / "libs")


def test_brokers_replicate_and_elect_over_tls_with_logins(jars):
    """Replication, groups, transactions and the death of a leader work while the brokers' login sessions expire."""
    config = {"connections.max.reauth.ms": SESSION_MS}
    with kafkapy.Cluster(3, zookeeper_jars=jars, tls=True, users=USERS, config=config) as cluster:
        security = cluster.client_properties("alice", "SCRAM-SHA-512")
        with Admin(cluster.bootstrap_servers, security=security) as admin:
            admin.create_topic("t", 3)
            until = time.monotonic() + 2.5 * SESSION_MS / 1000
            sent = 0
            found: list[bytes] = []
            with (
                TransactionalProducer(cluster.bootstrap_servers, "id", security=security) as producer,
                GroupConsumer(
                    cluster.bootstrap_servers,
                    "g",
                    auto_offset_reset="earliest",
                    isolation="read_committed",
                    security=security,
                ) as consumer,
            ):
                consumer.subscribe(["t"])
                while time.monotonic() < until:
                    with producer.transaction():
                        for _ in range(10):
                            producer.send("t", b"%d" % sent, partition=sent % 3)
                            sent += 1
                    found += [record.value or b"" for record in consumer.poll(0)]
                cluster.kill(admin.describe_cluster().controller_id)
                with producer.transaction():
                    producer.send("t", b"%d" % sent, partition=sent % 3)
                    sent += 1
                deadline = time.monotonic() + 60
                while len(found) < sent and time.monotonic() < deadline:
                    found += [record.value or b"" for record in consumer.poll()]
        assert sorted(found, key=int) == [b"%d" % number for number in range(sent)]
        logs = [cluster.broker(number).stderr() for number in cluster.running]
        assert not [log for log in logs if "the login at" in log or "alice-secret" in log], logs


def secured_settings(directory: Path, pki: Pki, number: int, zookeeper: str) -> dict[str, str]:
    """Return the settings of a broker with a plain listener for the test, and SASL_SSL with SCRAM between brokers."""
    ports = brokers.free_port(), brokers.free_port()
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return {
        "broker.id": str(number),
        "zookeeper.connect": zookeeper,
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SASL_SSL://127.0.0.1:{ports[1]}",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f'{scram} username="brokers" password="their-secret";',
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(SESSION_MS),
        "offsets.topic.replication.factor": "2",
        "auto.leader.rebalance.enable": "false",
        **pki.server.settings(directory / f"tls-{number}", trusted=[pki.authority]),
    }


@pytest.mark.parametrize("first", ["kafka", "kafkapy"])
def test_kafka_and_kafkapy_replicate_from_each_other_over_sasl_ssl(tmp_path, first):
    """Each broker is the controller once, and leads a partition that the other follows, over two login sessions."""
    pki = Pki()
    with ExitStack() as stack:
        zookeeper = ZooKeeper(tmp_path / "zookeeper")
        stack.callback(zookeeper.stop)
        file = tmp_path / "users.properties"
        file.write_text(f"zookeeper.connect={zookeeper.address}\nlog.dirs={tmp_path}/none\n")
        add = ["users", "add", "brokers", "--password", "their-secret", "--offline", "--command-config", str(file)]
        assert main(add) == 0
        running = {}
        for number, kind in enumerate([first, {"kafka": "kafkapy", "kafkapy": "kafka"}[first]], 1):
            settings = secured_settings(tmp_path, pki, number, zookeeper.address)
            port = int(settings["listeners"].partition(",")[0].rpartition(":")[2])
            directory = tmp_path / f"broker-{number}"
            if kind == "kafka":
                running[number] = brokers.KafkaBroker(directory, settings, port=port, zookeeper=zookeeper.address)
            else:
                running[number] = brokers.KafkapyBroker(directory, settings)
            stack.callback(running[number].kill)
        with Admin(running[1].bootstrap) as admin:
            eventually(lambda: len(admin.describe_cluster().brokers) == 2, seconds=60)
            assert admin.describe_cluster().controller_id == 1
            admin.create_topics(
                [NewTopic("t", assignment={0: [1, 2], 1: [2, 1]}, configs={"min.insync.replicas": "2"})]
            )
            until = time.monotonic() + 2.5 * SESSION_MS / 1000
            sent = 0
            with RecordProducer(admin.cluster) as producer:
                while time.monotonic() < until:
                    for _ in range(100):
                        producer.send("t", b"%d" % sent, partition=sent % 2)
                        sent += 1
                    producer.flush()
            with Consumer(admin.cluster, isolation="read_committed") as consumer:
                consumer.assign_topic("t")
                found = sorted(int(record.value or b"") for record in consumer.records())
            assert found == list(range(sent))
            topic = admin.cluster.topic("t", refresh=True)
            assert {index: (one.leader, sorted(one.isr)) for index, one in topic.partitions.items()} == {
                0: (1, [1, 2]),
                1: (2, [1, 2]),
            }
