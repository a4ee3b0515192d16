"""Brokers use only TLS between each other, with certificates on both sides."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata, TopicMetadata

from kafkapy.testing.zookeeper import ZooKeeper
from tests.harness.brokers import QUICK, KafkapyBroker, free_port
from tests.harness.certificates import Authority, Issued, Pki, trust_settings
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.tls_records import check_records
from tests.harness.waiting import eventually
from tests.harness.zookeeper import jars_in

pytestmark = pytest.mark.other_runtime


class TlsCluster:
    """Brokers with a plain listener for clients, a TLS listener for each other, and a certificate each.

    Brokers reach a broker's TLS listener through a proxy, which records the bytes.
    """

    def __init__(self, directory: Path) -> None:
        self.pki = Pki()
        self.directory = directory
        self.zookeeper = ZooKeeper(directory / "zookeeper", jars_in(directory / "jars"))
        self.brokers: dict[int, KafkapyBroker] = {}
        self.proxies: dict[int, TcpProxy] = {}
        self.ports = {number: (free_port(), free_port()) for number in (1, 2, 3)}

    def start(self, number: int, authority: Authority | None = None) -> None:
        """Start a broker whose certificate is signed by `authority`, by default the one that all brokers trust."""
        clients, others = self.ports[number]
        trusted = [self.pki.authority] if authority is None else [self.pki.authority, authority]
        issued = trusted[-1].issue(f"CN=broker-{number}", names=["localhost"])
        if number not in self.proxies:
            self.proxies[number] = TcpProxy(others, record=True)
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{clients},BROKERS://127.0.0.1:{others}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{clients},BROKERS://localhost:{self.proxies[number].port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SSL",
            "inter.broker.listener.name": "BROKERS",
            "ssl.client.auth": "required",
        }
        self.run(number, settings, issued, trusted)

    def run(self, number: int, settings: dict[str, str], issued: Issued, trusted: Sequence[Issued]) -> None:
        """Start a broker with these settings and with those that all brokers have."""
        self.brokers[number] = KafkapyBroker(
            self.directory / f"broker-{number}",
            {
                **QUICK,
                "broker.id": str(number),
                "zookeeper.connect": self.zookeeper.address,
                "zookeeper.session.timeout.ms": "6000",
                "replica.lag.time.max.ms": "3000",
                "replica.fetch.backoff.ms": "200",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                **issued.settings(self.directory / f"stores-{number}", trusted=trusted),
                **settings,
            },
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def isr(self, topic: str) -> set[int]:
        return set(self._partition(topic).isrs)

    def leader(self, topic: str) -> int:
        leader: int = self._partition(topic).leader
        return leader

    def _partition(self, topic: str) -> PartitionMetadata:
        asked = self.brokers[min(self.brokers)].bootstrap  # a broker that the others refuse never is
        return AdminClient({"bootstrap.servers": asked}).list_topics(topic, timeout=10).topics[topic].partitions[0]

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for proxy in self.proxies.values():
            proxy.close()
        self.zookeeper.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TlsCluster]:
    running = TlsCluster(tmp_path)
    yield running
    running.stop()


def test_replication_over_tls_with_new_certificates_and_elections(cluster: TlsCluster) -> None:
    """All bytes between the brokers are TLS records. A broker with a foreign certificate gets no data."""
    for number in (1, 2, 3):
        cluster.start(number)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 3)
    for future in admin.create_topics([NewTopic("t", 1, 3)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    secret = b"what nobody may read "
    sent: list[bytes] = []

    def produce(count: int) -> None:
        for _ in range(count):
            sent.append(secret + b"%d " % len(sent) + b"x" * (200_000 if len(sent) % 100 == 7 else 20))
            producer.produce("t", sent[-1])
        assert producer.flush(60) == 0

    produce(300)
    assert eventually(lambda: cluster.isr("t") == {1, 2, 3})

    for number in (1, 2, 3):
        renewed = cluster.pki.authority.issue(f"CN=broker-{number}", names=["localhost"])
        renewed.settings(cluster.directory / f"stores-{number}")
        cluster.brokers[number].process.child.send_signal(signal.SIGHUP)
        produce(10)
    leader = cluster.leader("t")
    cluster.brokers.pop(leader).kill()
    produce(200)
    cluster.start(leader)
    assert eventually(lambda: cluster.isr("t") == {1, 2, 3}, seconds=60)
    assert read("t", {"bootstrap.servers": cluster.bootstrap}, len(sent)) == sent

    cluster.brokers.pop(3).stop()
    cluster.start(3, Authority.root("Foreign CA"))
    eventually(
        lambda: any("its certificate is not accepted" in cluster.brokers[one].process.output for one in (1, 2)),
        seconds=60,
    )
    assert 3 not in cluster.isr("t")
    for proxy in cluster.proxies.values():
        assert proxy.streams
        for stream in proxy.streams:
            assert secret not in stream
            check_records(stream)


class Load:
    """A thread that produces numbers one after the other until `stop`. Each must be acknowledged by all replicas."""

    def __init__(self, settings: dict[str, str], topic: str) -> None:
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": "true", "linger.ms": "5"})
        self._topic = topic
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.sent: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.sent.append(b"%d" % len(self.sent))
            self._producer.produce(self._topic, self.sent[-1], on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))

    def stop(self) -> list[bytes]:
        """Stop, and return the numbers that were sent. Raise AssertionError if one was not acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.errors
        return self.sent


def test_a_cluster_moves_to_tls_under_load_without_an_outage(cluster: TlsCluster) -> None:
    """Each step restarts the brokers in turn: add a TLS listener, let the brokers use it, remove the plain one."""
    plain = {number: f"PLAINTEXT://127.0.0.1:{ports[0]}" for number, ports in cluster.ports.items()}
    secured = {number: f"SSL://localhost:{ports[1]}" for number, ports in cluster.ports.items()}
    issued = {number: cluster.pki.authority.issue(f"CN=broker-{number}", names=["localhost"]) for number in plain}
    trusted = [cluster.pki.authority]
    trust = trust_settings(cluster.directory / "clients", trusted)["ssl.truststore.location"]
    by_plain = {"bootstrap.servers": ",".join(one.partition("://")[2] for one in plain.values())}
    by_tls = {
        "bootstrap.servers": ",".join(one.partition("://")[2] for one in secured.values()),
        "security.protocol": "ssl",
        "ssl.ca.location": trust,
    }

    def restart(listeners: dict[int, str], between_brokers: str, client: dict[str, str]) -> None:
        for number in (1, 2, 3):
            if number in cluster.brokers:
                cluster.brokers.pop(number).stop()
            settings = {"listeners": listeners[number], "security.inter.broker.protocol": between_brokers}
            cluster.run(number, settings, issued[number], trusted)
            if "t" in topics(client):
                assert eventually(lambda: isr(client) == {1, 2, 3}, seconds=60)

    def topics(client: dict[str, str]) -> dict[str, TopicMetadata]:
        found: dict[str, TopicMetadata] = AdminClient(client).list_topics(timeout=30).topics
        return found

    def isr(client: dict[str, str]) -> set[int]:
        return set(topics(client)["t"].partitions[0].isrs)

    both = {number: f"{plain[number]},{secured[number]}" for number in plain}
    restart(plain, "PLAINTEXT", by_plain)
    admin = AdminClient(by_plain)
    eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 3)
    for future in admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})]).values():
        future.result(30)
    load = Load(by_plain, "t")
    restart(both, "PLAINTEXT", by_plain)
    next_load = Load(by_tls, "t")  # the clients change to the TLS listener
    sent = load.stop()
    restart(both, "SSL", by_tls)
    restart(secured, "SSL", by_tls)
    sent += next_load.stop()
    assert len(sent) > 100
    assert sorted(read("t", by_tls, len(sent))) == sorted(sent)


def read(topic: str, settings: dict[str, str], count: int) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(message.value() for message in consumer.consume(1000, 0.1))
        return len(found) >= count

    eventually(all_read, seconds=60)
    consumer.close()
    return found
