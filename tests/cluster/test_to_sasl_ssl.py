"""A cluster with ACLs moves from PLAINTEXT to SASL_SSL without an outage, while a producer and a consumer run.

Until the end of the move, both principals of the brokers are super users.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkapy.client import AclAdmin, Admin, Cluster, Consumer, NewTopic, RecordProducer
from kafkapy.errors import Errors, KafkaError
from kafkapy.security.acls.bindings import Binding, Entry, Pattern
from kafkapy.testing.broker import Broker
from kafkapy.tools.main import main
from tests.harness.brokers import free_port
from tests.harness.certificates import Pki, trust_settings
from tests.harness.zookeeper import ZooKeeper, eventually

pytestmark = pytest.mark.other_runtime

IDS = (1, 2, 3)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN, BOTH, SWITCHED, SECURED = range(4)  # the stages: listeners added, brokers switched, PLAINTEXT removed


class Moving:
    """Three brokers that are restarted in turn, with the settings of the next stage."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pki = Pki()
        self.zookeeper = ZooKeeper(directory / "zookeeper")
        self.ports = {number: (free_port(), free_port()) for number in IDS}
        self.running: dict[int, Broker] = {}
        file = directory / "users.properties"
        file.write_text(f"zookeeper.connect={self.zookeeper.address}\nlog.dirs={directory}/none\n")
        for user in ("brokers", "alice"):
            add = ["users", "add", user, "--password", f"{user}-secret", "--offline", "--command-config", str(file)]
            assert main(add) == 0

    def bootstrap(self, protocol: str) -> str:
        return ",".join(f"127.0.0.1:{ports[protocol == 'SASL_SSL']}" for ports in self.ports.values())

    def client(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            **trust_settings(self.directory / "trust", [self.pki.authority]),
        }

    def settings(self, number: int, stage: int) -> Mapping[str, Any]:
        plain, secured = (f"{name}://127.0.0.1:{port}" for name, port in
                          zip(("PLAINTEXT", "SASL_SSL"), self.ports[number], strict=True))  # fmt: skip
        found: dict[str, Any] = {
            "broker.id": number,
            "zookeeper.connect": self.zookeeper.address,
            "listeners": {PLAIN: plain, SECURED: secured}.get(stage, f"{plain},{secured}"),
            "inter.broker.listener.name": "PLAINTEXT" if stage < SWITCHED else "SASL_SSL",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:brokers" if stage < SECURED else "User:brokers",
        }
        if stage > PLAIN:
            jaas = f'{SCRAM} username="brokers" password="brokers-secret";'
            found |= {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": jaas,
                **self.pki.server.settings(self.directory / f"tls-{number}", trusted=[self.pki.authority]),
            }
        return found

    def start(self, number: int, stage: int) -> None:
        self.running[number] = Broker(
            self.directory / f"broker-{number}", process=True, config=self.settings(number, stage)
        ).start()

    def restart_all(self, stage: int, admin: Admin) -> None:
        """Restart the brokers in turn, each time waiting until all replicas are in sync again."""
        for number in IDS:
            self.running.pop(number).stop()
            self.start(number, stage)
            eventually(lambda: is_whole(admin), seconds=60, what=f"stage {stage}, broker {number}")

    def close(self) -> None:
        for broker in self.running.values():
            broker.stop()
        self.zookeeper.stop()


def is_whole(admin: Admin) -> bool:
    topic = admin.cluster.topic("t", refresh=True)
    return all(len(one.isr) == 3 and one.leader > 0 for one in topic.partitions.values())


class Load:
    """A thread that sends numbers to a topic with acks=all until `stop`, beginning with `first`."""

    def __init__(self, servers: str, security: Mapping[str, str], first: int) -> None:
        self.next = first
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._cluster = Cluster(servers, security=security)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._cluster, RecordProducer(self._cluster, timeout_s=60) as producer:
                while not self._stopping.is_set():
                    for _ in range(20):
                        producer.send("t", b"%d" % self.next, partition=self.next % 3)
                        self.next += 1
                    producer.flush()
                    time.sleep(0.005)  # limits the load
        except BaseException as error:
            self._failure = error

    def stop(self) -> int:
        """End the load and return the next number; all earlier numbers were acknowledged. Raise the thread's error."""
        self._stopping.set()
        self._thread.join(120)
        if self._failure is not None:
            raise self._failure
        return self.next


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    made = Moving(tmp_path)
    yield made
    made.close()


def test_a_cluster_goes_to_sasl_ssl_under_load(moving: Moving) -> None:
    for number in IDS:
        moving.start(number, PLAIN)
    with Admin(moving.bootstrap("PLAINTEXT")) as admin:
        eventually(lambda: len(admin.describe_cluster().brokers) == 3, seconds=30)
        admin.create_topics([NewTopic("t", 3)])
        AclAdmin(admin.cluster).create_acls([Binding(Pattern("TOPIC", "t"), Entry("User:alice", "*", "ALL", "ALLOW"))])
        load = Load(moving.bootstrap("PLAINTEXT"), {}, 0)
        moving.restart_all(BOTH, admin)
    sent = load.stop()
    secured = moving.bootstrap("SASL_SSL")
    with Admin(secured, security=moving.client()) as admin:
        load = Load(secured, moving.client(), sent)
        moving.restart_all(SWITCHED, admin)
        moving.restart_all(SECURED, admin)
        sent = load.stop()
        assert {broker.port for broker in admin.describe_cluster().brokers} == {two for _, two in moving.ports.values()}
        with Consumer(admin.cluster) as consumer:
            consumer.assign_topic("t")
            found = [int(record.value or b"") for record in consumer.records()]
        with pytest.raises(KafkaError) as refused:
            admin.create_topics([NewTopic("other", 1)])
    assert refused.value.code == Errors.TOPIC_AUTHORIZATION_FAILED
    assert sorted(found) == list(range(sent))
