"""kafkapy.Broker with TLS and users: its own certificates, and the properties for clients."""

import tempfile
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import kafkapy
from kafkapy.client import AuthenticationFailed, Cluster, ConnectionFailed, Consumer, RecordProducer

USERS = {"alice": 'alice\'s \\ "secret"', "bob": "bob-secret"}


def round_trip(broker, security):
    with RecordProducer(broker.bootstrap_servers, security=security) as producer:
        producer.send("t", b"hello", partition=0)
    with Consumer(broker.bootstrap_servers, security=security) as consumer:
        consumer.assign_topic("t")
        assert [record.value for record in consumer.records()][-1] == b"hello"


@pytest.mark.parametrize("process", [False, True])
def test_a_broker_with_tls_and_users(process):
    with kafkapy.Broker(tls=True, users=USERS, process=process) as broker:
        for user in USERS:
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                round_trip(broker, broker.client_properties(user, mechanism))
        wrong = {**broker.client_properties(), "sasl.username": "alice", "sasl.password": "wrong"}
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            Cluster(broker.bootstrap_servers, security=wrong).refresh([])
        if process:
            command = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
            assert not [secret for secret in USERS.values() if secret.encode() in command]


def test_a_broker_with_tls_serves_other_clients():
    with kafkapy.Broker(tls=True) as broker:
        assert broker.client_properties()["security.protocol"] == "SSL"
        round_trip(broker, broker.client_properties())
        theirs = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL"}
        admin = AdminClient(theirs | {"ssl.ca.location": str(broker.ca_file)})
        assert "t" in admin.list_topics(timeout=30).topics
        with pytest.raises(
            ConnectionFailed, match=r"closed the connection\. Does it need TLS\? See security\.protocol"
        ):
            Cluster(broker.bootstrap_servers).refresh([])


def test_a_broker_with_users_and_without_tls():
    with kafkapy.Broker(users=USERS) as broker:
        assert broker.client_properties()["security.protocol"] == "SASL_PLAINTEXT"
        assert broker.ca_file is None
        round_trip(broker, broker.client_properties("bob"))
        with pytest.raises(
            ConnectionFailed, match=r"closed the connection\. Does it need a login\? See security\.proto"
        ):
            Cluster(broker.bootstrap_servers).refresh([])


def test_any_name_and_password_logs_in():
    users = {"bob smith": "x", "a,b=c;": "two\r\nlines", 'o"\\d': "y"}
    with kafkapy.Broker(users=users) as broker:
        for user in users:
            for mechanism in ("PLAIN", "SCRAM-SHA-512"):
                Cluster(broker.bootstrap_servers, security=broker.client_properties(user, mechanism)).refresh([])


@pytest.mark.parametrize("brokers", [kafkapy.Broker, kafkapy.Cluster])
def test_users_that_cannot_be_are_refused_and_no_directory_is_left(brokers, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="users is empty"):
        brokers(users={})
    with pytest.raises(ValueError, match="kafkapy-broker is the broker itself"):
        brokers(users={"kafkapy-broker": "x"})
    assert not list(tmp_path.iterdir())
