"""The producer's properties, by their names of Kafka 0.8 and of 0.7."""

import logging

import pytest

from kafkapy.client.original.encoders import StringEncoder
from kafkapy.client.original.partitioners import DefaultPartitioner, Murmur2Partitioner
from kafkapy.client.original.producing.producer_config import (
    NAMES,
    chosen,
    chosen_encoders,
    chosen_partitioner,
    read_config,
)

BROKERS = {"metadata.broker.list": "a:9092"}
OLD = {
    "broker.list": "0:a:9092, 12:[::1]:9093",
    "producer.type": "async",
    "queue.time": "250",
    "queue.size": "50",
    "queue.enqueueTimeout.ms": "0",
    "batch.size": "20",
    "num.retries": "5",
    "compression.codec": "1",
    "compressed.topics": "clicks, orders",
    "socket.timeout.ms": "1500",
}
NEW = {
    "metadata.broker.list": "a:9092,[::1]:9093",
    "producer.type": "async",
    "queue.buffering.max.ms": 250,
    "queue.buffering.max.messages": 50,
    "queue.enqueue.timeout.ms": 0,
    "batch.num.messages": 20,
    "message.send.max.retries": 5,
    "compression.codec": "gzip",
    "compressed.topics": "clicks,orders",
    "request.timeout.ms": 1500,
}


def test_both_sets_of_names_mean_the_same():
    old, new = read_config(OLD), read_config(NEW)
    for field in old.__dataclass_fields__:
        assert field == "properties" or getattr(old, field) == getattr(new, field), field
    assert old.brokers == ["a:9092", "[::1]:9093"]
    assert old.compressed_topics == {"clicks", "orders"}
    assert (old.queue_time_s, old.enqueue_timeout_s, old.codec) == (0.25, 0.0, 1)


def test_defaults_are_those_of_kafka_except_for_acks():
    config = read_config(BROKERS)
    assert (config.is_async, config.queue_time_s, config.queue_size, config.batch_size) == (False, 5.0, 10_000, 200)
    assert (config.enqueue_timeout_s, config.retries, config.backoff_s, config.codec) == (None, 3, 0.1, 0)
    assert config.acks == 1
    assert read_config({**BROKERS, "enable.idempotence": "true"}).acks == -1


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "one of metadata.broker.list .* and zk.connect is needed; none is given"),
        ({**BROKERS, "zk.connect": "z:2181"}, "both are given"),
        ({"broker.list": "a"}, "the address 'a' is not HOST:PORT"),
        ({**BROKERS, "producer.type": "later"}, "producer.type is 'later'; it can be sync, async"),
        ({**BROKERS, "queue.time": "soon"}, "queue.time is 'soon'; it must be a whole number from 0"),
        ({**BROKERS, "batch.size": "0"}, "batch.size is '0'; it must be a whole number from 1"),
        (
            {**BROKERS, "batch.size": 9, "queue.size": 8},
            "batch.num.messages is 9, more than queue.buffering",
        ),
        ({**BROKERS, "queue.size": 8, "queue.buffering.max.messages": 9}, "queue.size=8 are the same property"),
        ({**BROKERS, "compression.codec": "zip"}, "compression.codec is 'zip'; it can be none, 0, gzip"),
        ({**BROKERS, "request.required.acks": "2"}, "request.required.acks is '2'"),
        ({**BROKERS, "request.required.acks": "1", "enable.idempotence": "true"}, "needs request.required.acks=-1"),
    ],
)
def test_an_invalid_property_is_named_with_its_value(properties, message):
    with pytest.raises(ValueError, match=message):
        read_config(properties)


def test_unknown_properties_and_those_without_effect_are_logged(caplog):
    caplog.set_level(logging.INFO)
    read_config({**BROKERS, "batch.sise": "5", "buffer.size": "100"})
    assert "batch.sise is not known to the producer" in caplog.text
    assert "buffer.size has no effect" in caplog.text


def test_each_name_is_known_once():
    names = [name for group in NAMES for name in group]
    assert len(names) == len(set(names))


class Own:
    """An encoder class of the caller's own."""

    def __init__(self, properties):
        self.properties = dict(properties)


def test_classes_are_found_by_kafkas_names_by_those_of_python_or_given():
    encoder, key_encoder = chosen_encoders({"serializer.class": "kafka.serializer.StringEncoder"})
    assert isinstance(encoder, StringEncoder)
    assert key_encoder is encoder
    assert isinstance(chosen_partitioner({}), DefaultPartitioner)
    assert isinstance(chosen_partitioner({"partitioner.class": "murmur2"}), Murmur2Partitioner)
    assert isinstance(chosen({"event.handler": "collections.Counter"}, "event.handler", {}), dict)
    assert chosen({}, "event.handler", {}) is None
    own = chosen({"callback.handler": Own, "callback.handler.props": "a=1, b=x=y"}, "callback.handler", {})
    assert own.properties == {"a": "1", "b": "x=y"}
    assert chosen({"event.handler": Own, "x": 1}, "event.handler", {}).properties["x"] == 1


@pytest.mark.parametrize("name", ["com.example.Encoder", "Encoder", "collections.Nothing"])
def test_a_class_that_cannot_be_loaded_is_named(name):
    with pytest.raises(ValueError, match=f"serializer.class is '{name}', which cannot be loaded"):
        chosen_encoders({"serializer.class": name})


def test_properties_of_a_class_that_cannot_be_read_are_named():
    with pytest.raises(ValueError, match=r"event\.handler\.props is 'a'"):
        chosen({"event.handler": Own, "event.handler.props": "a"}, "event.handler", {})
