"""kafkapy's own clients work with Apache Kafka 3.9.1 over TLS and SASL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from kafkapy.client import (
    Admin,
    AuthenticationFailed,
    ClientError,
    Cluster,
    Consumer,
    GroupConsumer,
    NewTopic,
    RecordProducer,
    TransactionalProducer,
)
from kafkapy.client.security import Security
from kafkapy.tools.main import main
from tests.harness.certificates import Authority, pem, trust_settings
from tests.harness.secured_kafka import MECHANISMS, REAUTHENTICATION_MS, USERS, SecuredKafka, jaas

pytestmark = pytest.mark.other_runtime

WAYS = [
    ("SSL", ""),
    *(("SASL_SSL", mechanism) for mechanism in MECHANISMS),
    *(("SASL_PLAINTEXT", mechanism) for mechanism in MECHANISMS),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, tools) -> Iterator[SecuredKafka]:
    secured = SecuredKafka(tmp_path_factory.mktemp("secured"))
    try:
        secured.add_scram_users(tools)
        yield secured
    finally:
        secured.close()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_a_group_and_a_transaction_over_each_protocol_and_mechanism(kafka, protocol, mechanism):
    topic, servers = f"t-{protocol}-{mechanism}", kafka.bootstrap(protocol)
    security = kafka.client(protocol, mechanism)
    with Admin(servers, security=security) as admin:
        admin.create_topics([NewTopic(topic, partitions=2)])
    with TransactionalProducer(servers, f"id-{topic}", security=security) as producer, producer.transaction():
        for number in range(100):
            producer.send(topic, b"%d" % number, key=b"%d" % number)
    with GroupConsumer(
        servers, f"g-{topic}", auto_offset_reset="earliest", isolation="read_committed", security=security
    ) as consumer:
        consumer.subscribe([topic])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < 100 and time.monotonic() < deadline:
            found += [record.value or b"" for record in consumer.poll()]
        consumer.commit()
    assert sorted(found, key=int) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_session_is_renewed_before_its_end_while_requests_are_in_flight(kafka, monkeypatch, mechanism):
    """Every record arrives once and in order, over more than two login sessions of each connection."""
    security, topic = kafka.client("SASL_SSL", mechanism), f"renewed-{mechanism}"
    logins = count_logins(monkeypatch)
    with Cluster(kafka.bootstrap("SASL_SSL"), security=security) as cluster:
        Admin(cluster).create_topic(topic, 1)
        until = time.monotonic() + 2.5 * REAUTHENTICATION_MS / 1000
        sent = 0
        with RecordProducer(cluster, batch_bytes=1000) as producer:
            while time.monotonic() < until:
                for _ in range(1000):
                    producer.send(topic, b"%d" % sent, partition=0)
                    sent += 1
        with Consumer(cluster) as consumer:
            consumer.assign_topic(topic)
            found = [record.value for record in consumer.records()]
    assert found == [b"%d" % number for number in range(sent)]
    assert len(logins) > 2 + 2, "the bootstrap connection, the producer's and the renewals of one of them"


def test_an_idle_connection_is_used_after_its_session_has_ended(kafka, monkeypatch):
    logins = count_logins(monkeypatch)
    with Cluster(kafka.bootstrap("SASL_PLAINTEXT"), security=kafka.client("SASL_PLAINTEXT", "PLAIN")) as cluster:
        cluster.refresh([])
        assert len(logins) == 1
        connection = cluster.any_connection()
        ended = time.monotonic() + REAUTHENTICATION_MS / 1000
        while time.monotonic() <= ended:
            time.sleep(0.05)
        cluster.refresh([])
        assert cluster.any_connection() is connection
        assert len(logins) == 2


def count_logins(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets an element for each login from now on."""
    logins: list[None] = []
    mechanism = Security.mechanism

    def counted(self, host):
        logins.append(None)
        return mechanism(self, host)

    monkeypatch.setattr(Security, "mechanism", counted)
    return logins


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_one_clear_error_without_a_retry(kafka, monkeypatch, mechanism):
    logins = count_logins(monkeypatch)
    security = kafka.client("SASL_SSL", mechanism)
    security["sasl.jaas.config"] = jaas(mechanism, username="alice", password="wrong-password")
    with GroupConsumer(kafka.bootstrap("SASL_SSL"), "g", security=security) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(
            AuthenticationFailed, match=r"The login to the broker at 127\.0\.0\.1:\d+ failed: "
        ) as caught:
            consumer.poll()
    assert "wrong-password" not in str(caught.value)
    assert len(logins) == 1


def test_a_login_at_a_listener_without_logins_says_so(kafka):
    plain = kafka.client("SASL_PLAINTEXT", "PLAIN")
    with pytest.raises(AuthenticationFailed, match="its listener takes no login"):
        Cluster(kafka.bootstrap("PLAINTEXT"), security=plain).refresh([])


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_certificate_of_an_unknown_authority_is_refused_by_the_client(kafka, protocol, tmp_path):
    security = kafka.client(protocol, "PLAIN") | trust_settings(tmp_path, [Authority.root("Another CA")])
    with pytest.raises(
        AuthenticationFailed, match=r"The certificate of 127.* is not accepted: unable to get local iss"
    ):
        Cluster(kafka.bootstrap(protocol), security=security).refresh([])


def test_the_host_name_is_verified_unless_the_setting_is_empty(kafka):
    port = kafka.ports["SASL_SSL"]
    security = kafka.client("SASL_SSL", "PLAIN")
    with pytest.raises(AuthenticationFailed, match=r"is not accepted: IP address mismatch"):
        Cluster(f"127.0.0.2:{port}", security=security).refresh([])
    for empty in ("", "none"):  # the values of Java and librdkafka
        security["ssl.endpoint.identification.algorithm"] = empty
        with Cluster(f"127.0.0.2:{port}", security=security) as cluster:
            cluster.refresh([])


def test_a_client_certificate_that_is_missing_or_foreign_is_one_clear_error(kafka, tmp_path):
    servers, security = kafka.bootstrap("SSL"), kafka.client("SSL")
    foreign = security | kafka.pki.stranger.settings(tmp_path)
    missing = {name: value for name, value in security.items() if "keystore" not in name}
    for settings in (foreign, missing):
        with pytest.raises(
            ClientError, match=r"127\.0\.0\.1:\d+ refused the TLS connection: .*certificate|broke|closed"
        ):
            Cluster(servers, security=settings).refresh([])


def test_the_names_of_librdkafka_mean_the_same(kafka, tmp_path):
    (tmp_path / "ca.pem").write_text(pem(kafka.pki.authority.certificate))
    (tmp_path / "cert.pem").write_text(kafka.pki.client.chain)
    (tmp_path / "key.pem").write_text(kafka.pki.client.key_pem("pw"))
    tls = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "cert.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.key.password": "pw",
    }
    login = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.pem": pem(kafka.pki.authority.certificate),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    trusting = {**login, "enable.ssl.certificate.verification": "false"}
    del trusting["ssl.ca.pem"]
    for protocol, settings in (("SSL", tls), ("SASL_SSL", login), ("SASL_SSL", trusting)):
        with Cluster(kafka.bootstrap(protocol), security=settings) as cluster:
            cluster.refresh([])
            assert cluster.brokers


def test_plain_text_on_a_listener_with_tls_and_the_reverse_say_so(kafka):
    with pytest.raises(ClientError, match=r"the listener needs TLS|closed the connection"):
        Cluster(kafka.bootstrap("SASL_SSL")).refresh([])
    tls = kafka.client("SASL_SSL", "PLAIN")
    with pytest.raises(
        ClientError, match=r"the server does not speak TLS|closed the connection during the TLS handshake"
    ):
        Cluster(kafka.bootstrap("PLAINTEXT"), security=tls).refresh([])


def test_commands_take_the_settings_of_kafkas_tools(kafka, monkeypatch, capsys):
    file = kafka.tool_file(kafka.client("SASL_SSL", "SCRAM-SHA-256"))
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", kafka.bootstrap("SASL_SSL"))
    assert main(["topics", "create", "by-command", "--command-config", str(file)]) == 0
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", str(file))
    assert main(["topics", "list"]) == 0
    said = capsys.readouterr()
    assert ("by-command" in said.out, said.err) == (True, "")


def test_benchmarks_of_apache_kafka_count_what_it_stores(kafka, tmp_path, capsys):
    file = tmp_path / "client.properties"
    security = kafka.client("SASL_SSL", "SCRAM-SHA-256")
    file.write_text("".join(f"{name}={value}\n" for name, value in security.items()).replace("\\", "\\\\"))
    servers = ("--command-config", str(file), "-b", kafka.bootstrap("SASL_SSL"), "--topic", "bench", "--json")
    for words, records in (
        (("produce", "--create", "--partitions", "2", "-n", "3000", "--record-size", "100", "--threads", "2"), 3102),
        (("consume",), 3102),
        (("latency", "-n", "20"), 20),
        (("commit", "-n", "30", "--consumers", "3"), 30),
    ):
        assert main(["bench", *words, *servers]) == 0
        found = json.loads(capsys.readouterr().out)
        latency = found["latencyMs"]
        assert found["records"] == records
        assert latency["min"] <= latency["p50"] <= latency["p99"] <= latency["p99.99"] <= latency["max"]
