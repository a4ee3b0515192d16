"""Current clients and Kafka's own tools work over TLS, with large records, and while certificates change under load.

test_secured_clients.py has clients with certificates of their own, and groups."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from tests.harness import brokers
from tests.harness.certificates import Pki, trust_settings
from tests.harness.clients.base import Record
from tests.harness.clients.registry import KINDS
from tests.harness.kafka_tools import KafkaTools
from tests.harness.waiting import eventually

pytestmark = pytest.mark.other_runtime

COUNT = 500
RENEWED = "new connections use the new key and trust stores"
VALUES = [b"%d " % number + b"x" * (50_000 if number % 50 == 0 else 100) for number in range(COUNT)]
PASSWORD = "store-password"
_topics = (f"tls-{number}" for number in itertools.count())


class TlsBroker:
    """A broker with a listener that asks for no client certificates (SSL), and one that requires them (MUTUAL)."""

    def __init__(self, directory: Path) -> None:
        self.pki = Pki()
        self.directory = directory
        settings = {
            **brokers.QUICK,
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0,MUTUAL://localhost:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),OU=Test.*$/$1/,DEFAULT",
            "num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.replication.factor": "1",
            **self.pki.server.settings(directory / "server", trusted=[self.pki.authority]),
        }
        self.process = brokers.KafkapyBroker(directory, settings)
        addresses = dict(one.split("://") for one in self.process.ready["addresses"].split(","))
        self.addresses: dict[str, str] = addresses
        self.trusted = trust_settings(directory, [self.pki.authority])["ssl.truststore.location"]
        self.client = self.pki.client.settings(directory / "client")["ssl.keystore.location"]

    def librdkafka(self, listener: str) -> dict[str, str]:
        own = {"ssl.certificate.location": self.client, "ssl.key.location": self.client}
        certificate = own if listener == "MUTUAL" else {}
        return {
            "bootstrap.servers": self.addresses[listener],
            "security.protocol": "ssl",
            "ssl.ca.location": self.trusted,
            **certificate,
        }

    def kafka_python(self) -> dict[str, Any]:
        """Return the settings for the listener SSL."""
        return {
            "bootstrap_servers": self.addresses["SSL"],
            "security_protocol": "SSL",
            "ssl_cafile": self.trusted,
        }

    def java(self, listener: str) -> Path:
        """Return a file with the properties of a Java client, whose stores are PKCS12."""
        stores = self.pki.client.java_settings(self.directory / "java", trusted=[self.pki.authority], password=PASSWORD)
        if listener != "MUTUAL":
            stores = {name: value for name, value in stores.items() if "truststore" in name}
        path = self.directory / f"{listener}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in {"security.protocol": "SSL", **stores}.items()))
        return path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    running = TlsBroker(tmp_path_factory.mktemp("tls"))
    yield running
    running.process.stop()


@pytest.fixture
def topic(broker: TlsBroker) -> str:
    name = next(_topics)
    admin = AdminClient(broker.librdkafka("SSL"))
    for future in admin.create_topics([NewTopic(name, 3)]).values():
        future.result(30)
    return name


def test_kafka_python(broker: TlsBroker, topic: str) -> None:
    settings = broker.kafka_python()
    with KafkaProducer(**settings) as producer:
        for value in VALUES:
            producer.send(topic, value)
    read: list[bytes] = []
    deadline = time.monotonic() + 60
    with KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
        while len(read) < COUNT and time.monotonic() < deadline:
            read += [one.value for found in consumer.poll(1000).values() for one in found]
    assert sorted(read) == sorted(VALUES)


def test_aiokafka(broker: TlsBroker, topic: str) -> None:
    context = ssl.create_default_context(cafile=broker.trusted)
    settings = {
        "bootstrap_servers": broker.addresses["SSL"],
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send(topic, value)
        read: list[bytes] = []
        deadline = time.monotonic() + 60
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            while len(read) < COUNT and time.monotonic() < deadline:
                found = await consumer.getmany(timeout_ms=1000)
                read += [one.value for messages in found.values() for one in messages]
        return read

    assert sorted(asyncio.run(run())) == sorted(VALUES)


def test_librdkafka_with_a_transaction(broker: TlsBroker, topic: str) -> None:
    settings = broker.librdkafka("SSL")
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in VALUES:
        producer.produce(topic, value)
    producer.commit_transaction(30)
    assert sorted(read_all(settings, topic)) == sorted(VALUES)


def read_all(settings: dict[str, str], topic: str, count: int = COUNT) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(read) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1):
            assert message.error() is None, message.error()
            read.append(message.value())
    consumer.close()
    return read


@pytest.mark.parametrize("kind", ["java-3.9.1", "java-4.4.0", "franz-go", "kafkajs"])
def test_clients_in_other_languages(broker: TlsBroker, topic: str, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each client produces, commits a transaction, and reads the committed records."""
    monkeypatch.setenv("INTEROP_JAVA_PROPERTIES", str(broker.java("SSL")))
    monkeypatch.setenv("INTEROP_TLS_CA", broker.trusted)
    client = KINDS[kind](broker.addresses["SSL"])
    try:
        sent = [Record(value, partition=0) for value in VALUES]
        client.produce(topic, sent)
        client.open_transactional(topic)
        client.transact(topic, topic, [Record(b"regretted", partition=0)], "abort")
        client.transact(topic, topic, [Record(b"last", partition=0)], "commit")
        client.close_transactional(topic)
        read = client.read_until(topic, [0], b"last", committed=True)
    finally:
        client.close()
    assert [one.value for one in read] == [*VALUES, b"last"]


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_kafkas_own_tools(broker: TlsBroker, tools: KafkaTools, topic: str, listener: str) -> None:
    properties, address = broker.java(listener), broker.addresses[listener]
    produced = tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", COUNT, "--record-size", 5000, "--throughput", -1),
        *("--producer.config", properties, "--producer-props", f"bootstrap.servers={address}"),
    )
    assert produced.code == 0, produced
    where = ("--bootstrap-server", address, "--topic", topic, "--group", topic)
    consumed = tools.run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *(*where, "--consumer.config", properties, "--messages", COUNT),
    )
    assert consumed.code == 0, consumed
    figures = re.search(r"^20\d\d-.*$", consumed.out, re.MULTILINE)
    assert figures is not None, consumed
    assert int(figures[0].split(", ")[4]) == COUNT
    described = tools.run(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", address, "--command-config", properties, "--describe", "--topic", topic),
    )
    assert f"Topic: {topic}" in described.out, described


def test_clients_without_a_certificate_are_refused_by_the_listener_that_wants_one(
    broker: TlsBroker, tools: KafkaTools
) -> None:
    address = broker.addresses["MUTUAL"]
    quick = {"max_block_ms": 3000, "bootstrap_timeout_ms": 3000}
    with pytest.raises(PythonKafkaError):
        KafkaProducer(**{**broker.kafka_python(), "bootstrap_servers": address}, **quick).send("t", b"x").get(10)
    with pytest.raises(KafkaException):
        AdminClient({**broker.librdkafka("SSL"), "bootstrap.servers": address}).list_topics(timeout=3)
    listed = tools.run(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", address, "--command-config", broker.java("SSL"), "--list"),
    )
    assert "Failed to process post-handshake messages" in listed.out, listed  # message of SslAuthenticationException
    assert "it has sent no certificate (ssl.client.auth=required)" in broker.process.process.output


def test_certificates_change_under_load(broker: TlsBroker, topic: str) -> None:
    """No record is lost while clients come and go, and SIGHUP loads another certificate every moment."""
    settings = broker.librdkafka("MUTUAL")
    stop = threading.Event()
    errors: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(str(error))

    def renew() -> None:
        while not stop.wait(0.2):
            issued = broker.pki.authority.issue("CN=broker,OU=Test,O=Acme", names=["localhost", "127.0.0.1", "::1"])
            issued.settings(broker.directory / "server")
            broker.process.process.child.send_signal(signal.SIGHUP)

    lasting = Producer(settings)
    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        eventually(lambda: RENEWED in broker.process.process.output)
        for number in range(0, COUNT, 50):
            one = Producer(settings)
            for value in VALUES[number : number + 50]:
                one.produce(topic, value, on_delivery=delivered)
                lasting.produce(topic, value, on_delivery=delivered)
            assert one.flush(30) == lasting.flush(30) == 0
    finally:
        stop.set()
        renewing.join()
    assert not errors
    assert sorted(read_all(settings, topic, 2 * COUNT)) == sorted(2 * VALUES)


def test_a_lagging_consumer_reads_what_the_disk_has(broker: TlsBroker, topic: str) -> None:
    """A partition is read from the beginning several times, with large fetches."""
    settings = broker.librdkafka("SSL")
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    for turn in range(3):
        consumer = Consumer({**settings, "group.id": f"{topic}-{turn}"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        read: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(read) < COUNT and time.monotonic() < deadline:
            read += [message.value() for message in consumer.consume(100, 1)]
        consumer.close()
        assert read == VALUES
