"""The original clients with a broker that needs TLS and a login."""

import pytest

import kafkapy
from kafkapy.client import AuthenticationFailed, KeyedMessage, Producer, SimpleConsumer, UnsupportedByBroker
from kafkapy.client.original.producing.producer_config import read_config
from kafkapy.client.original.producing.producer_messages import FailedToSendMessage
from kafkapy.client.original.znodes.cluster_tree import address_of


@pytest.fixture(scope="module")
def secured():
    with kafkapy.Broker(tls=True, users={"alice": "secret"}) as broker:
        yield broker


def producer(broker, **more):
    return Producer({"metadata.broker.list": broker.bootstrap_servers, **broker.client_properties(), **more})


def consumer(broker, **more):
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return SimpleConsumer(host, int(port), properties=broker.client_properties(), **more)


def test_messages_are_sent_and_fetched(secured):
    with producer(secured) as sending:
        sending.send(KeyedMessage("t", b"hello", b"k"))
    with consumer(secured) as fetching:
        assert [message.value for _, message in fetching.fetch("t", 0, 0, 1 << 20)] == [b"hello"]


def test_a_wrong_password_is_not_retried(secured):
    wrong = {"sasl.username": "alice", "sasl.password": "wrong-word", "retry.backoff.ms": "1"}
    with producer(secured, **wrong) as sending:
        with pytest.raises(FailedToSendMessage, match="Invalid username or password") as caught:
            sending.send(KeyedMessage("t", b"hello"))
        assert isinstance(caught.value.reason, AuthenticationFailed)


def test_brokers_of_kafka_0_7_have_neither(secured):
    with pytest.raises(UnsupportedByBroker, match=r"Kafka 0\.7 has neither TLS nor logins"):
        consumer(secured, broker_version="0.7")
    with pytest.raises(UnsupportedByBroker, match=r"Kafka 0\.7 has neither TLS nor logins"):
        producer(secured, **{"kafkapy.broker.version": "0.7"})


def test_the_listener_for_the_protocol_is_found_in_a_brokers_node():
    node = (
        b'{"listener_security_protocol_map":{"OUT":"SASL_SSL","PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://a:1","OUT://[::1]:2"],"host":"a","port":1,"version":5}'
    )
    assert address_of(node) == ("a", 1)
    assert address_of(node, "SASL_SSL") == ("::1", 2)
    with pytest.raises(ValueError, match="has no usable broker address"):
        address_of(node, "SSL")


def test_settings_show_no_password():
    given = {"metadata.broker.list": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    config = read_config(given | {"sasl.username": "alice", "sasl.password": "secret-word"})
    assert config.security.login
    assert "secret-word" not in repr(config)
