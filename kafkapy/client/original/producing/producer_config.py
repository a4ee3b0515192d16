"""The properties of the original producer, by their names in Kafka 0.8 and in 0.7.

Source: kafka.producer.{ProducerConfig, SyncProducerConfig, async.AsyncProducerConfig} of both versions.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkapy.client.addresses import parse_addresses
from kafkapy.client.original.encoders import ENCODERS
from kafkapy.client.original.partitioners import PARTITIONERS
from kafkapy.client.properties import ClientProperties, is_security
from kafkapy.client.security import Security
from kafkapy.client.security import read_security as read_broker_security
from kafkapy.metadata.zookeeper.properties import SECURITY, read_security
from kafkapy.record import compression
from kafkapy.runtime.addresses import host_port

log = logging.getLogger(__name__)

Properties = Mapping[str, Any]

# The names of each property: the name since 0.8 first, then those of 0.7.
NAMES = (
    ("metadata.broker.list", "broker.list"),
    ("zookeeper.connect", "zk.connect"),
    ("zookeeper.session.timeout.ms", "zk.sessiontimeout.ms"),
    ("zookeeper.connection.timeout.ms", "zk.connectiontimeout.ms"),
    ("producer.type",),
    ("queue.buffering.max.ms", "queue.time"),
    ("queue.buffering.max.messages", "queue.size"),
    ("queue.enqueue.timeout.ms", "queue.enqueueTimeout.ms"),
    ("batch.num.messages", "batch.size"),
    ("serializer.class",),
    ("key.serializer.class",),
    ("serializer.encoding",),
    ("partitioner.class",),
    ("compression.codec",),
    ("compressed.topics",),
    ("message.send.max.retries", "num.retries"),
    ("retry.backoff.ms",),
    ("request.required.acks",),
    ("request.timeout.ms", "socket.timeout.ms"),
    ("topic.metadata.refresh.interval.ms",),
    ("client.id",),
    ("event.handler",),
    ("event.handler.props",),
    ("callback.handler",),
    ("callback.handler.props",),
    ("enable.idempotence",),
    ("kafkapy.broker.version",),
    ("max.message.size",),
)
# Properties of sockets and of polling that do not apply to this client.
WITHOUT_EFFECT = {
    "send.buffer.bytes",
    "buffer.size",
    "connect.timeout.ms",
    "reconnect.interval",
    "reconnect.time.interval.ms",
    "zk.read.num.retries",
    "zk.synctime.ms",
    "zookeeper.sync.time.ms",
}
_WITH_ID = re.compile(r"\d+:(.+:\d+)")


@dataclass(frozen=True)
class ProducerConfig:
    """The original producer's settings. Times are in seconds. Either `brokers` (HOST:PORT) or `zookeeper` is set.

    enqueue_timeout_s: How long to wait while the queue is full. None: no limit.
    compressed_topics: The topics to compress; if empty, all topics are compressed.
    brokers_07: True if `brokers` are of Kafka 0.7. With ZooKeeper, the version is detected.
    max_message_size: The size of the largest message that brokers of Kafka 0.7 accept, in bytes.
    trust: TLS and SASL settings for ZooKeeper; see kafkapy.metadata.zookeeper.properties.
    security: How to connect to brokers of Kafka 0.8 and later.
    properties: All given properties, for the user's own classes.
    """

    properties: Properties = field(repr=False)  # may have passwords
    brokers: list[str]
    zookeeper: str | None
    session_timeout_ms: int
    connection_timeout_ms: int
    is_async: bool
    queue_time_s: float
    queue_size: int
    enqueue_timeout_s: float | None
    batch_size: int
    codec: int
    compressed_topics: frozenset[str]
    retries: int
    backoff_s: float
    acks: int
    request_timeout_s: float
    refresh_s: float
    client_id: str
    idempotent: bool
    brokers_07: bool
    max_message_size: int
    trust: Mapping[str, Any]
    security: Security


def read_config(properties: Properties) -> ProducerConfig:
    """Return the settings in the properties.

    Raises ValueError, which names the property and its value, if one is invalid.
    """
    read = ClientProperties(properties, names=NAMES)
    known = {present for present, *_ in NAMES} | SECURITY.keys() | {"security.protocol"}
    for name in sorted(name for name in read if name not in known and not is_security(name)):
        if name in WITHOUT_EFFECT:
            log.info("The property %s has no effect here.", name)
        else:
            log.warning("The property %s is not known to the producer; it is passed to its classes.", name)
    listed, zookeeper = read.text("metadata.broker.list"), read.text("zookeeper.connect") or None
    if bool(listed) == bool(zookeeper):
        given = "both are" if listed else "none is"
        raise ValueError(f"one of metadata.broker.list (0.7: broker.list) and zk.connect is needed; {given} given")
    idempotent = read.flag("enable.idempotence", False)
    codecs = {word: codec for codec, name in enumerate(compression.NAMES) for word in (name, str(codec))}
    acks = read.word("request.required.acks", {"-1": -1, "all": -1, "0": 0, "1": 1}, "-1" if idempotent else "1")
    if idempotent and acks != -1:
        raise ValueError(f"enable.idempotence needs request.required.acks=-1, not {acks}")
    enqueue_ms = read.number("queue.enqueue.timeout.ms", -1, least=-0x80000000)
    refresh_ms = read.number("topic.metadata.refresh.interval.ms", 600_000, least=-0x80000000)
    queue_size = read.number("queue.buffering.max.messages", 10_000)
    batch_size = read.number("batch.num.messages", 200)
    if batch_size > queue_size:
        raise ValueError(f"batch.num.messages is {batch_size}, more than queue.buffering.max.messages: {queue_size}")
    return ProducerConfig(
        properties=properties,
        brokers=_brokers(listed) if listed else [],
        zookeeper=zookeeper,
        session_timeout_ms=read.number("zookeeper.session.timeout.ms", 6000),
        connection_timeout_ms=read.number("zookeeper.connection.timeout.ms", 6000),
        is_async=read.word("producer.type", {"sync": False, "async": True}, "sync"),
        queue_time_s=read.number("queue.buffering.max.ms", 5000, least=0) / 1000,
        queue_size=queue_size,
        enqueue_timeout_s=None if enqueue_ms < 0 else enqueue_ms / 1000,
        batch_size=batch_size,
        codec=read.word("compression.codec", codecs, "none"),
        compressed_topics=frozenset(filter(None, map(str.strip, read.text("compressed.topics").split(",")))),
        retries=read.number("message.send.max.retries", 3, least=0),
        backoff_s=read.number("retry.backoff.ms", 100, least=0) / 1000,
        acks=acks,
        request_timeout_s=read.number("request.timeout.ms", 10_000) / 1000,
        refresh_s=float("inf") if refresh_ms < 0 else refresh_ms / 1000,
        client_id=read.text("client.id", "kafkapy"),
        idempotent=idempotent,
        brokers_07=read.word("kafkapy.broker.version", {"": False, "0.7": True}, ""),
        max_message_size=read.number("max.message.size", 1_000_000),
        trust=read_security(properties),
        security=read_broker_security(read),
    )


def chosen(properties: Properties, name: str, known: Mapping[str, type[Any]], default: str = "") -> Any:
    """Return an instance of the class that the property `name` names, or None if the property is not set.

    The property's value is a key of `known`, a class, or a text package.module.Class. The class is constructed with the
    properties, or with those in the property NAME.props (`a=b,c=d`). Raises ValueError if there is no such class.
    """
    what = properties.get(name) or default
    if not what:
        return None
    own = properties.get(f"{name}.props")
    given = properties if own is None else _pairs(f"{name}.props", own)
    if isinstance(what, type):
        return what(given)
    if what in known:
        return known[what](given)
    module, _, cls = str(what).rpartition(".")
    try:
        return getattr(importlib.import_module(module), cls)(given)
    except (ImportError, AttributeError, ValueError) as error:
        choices = ", ".join([*known, "or a class of Python as package.module.Class"])
        raise ValueError(f"{name} is {what!r}, which cannot be loaded ({error}); it can be {choices}") from error


def chosen_encoders(properties: Properties) -> tuple[Any, Any]:
    """Return the encoder of messages and the encoder of keys, the same object unless key.serializer.class is set."""
    encoder = chosen(properties, "serializer.class", ENCODERS, "kafka.serializer.DefaultEncoder")
    return encoder, chosen(properties, "key.serializer.class", ENCODERS) or encoder


def chosen_partitioner(properties: Properties) -> Any:
    """Return an instance of the partitioner class that the property `partitioner.class` names."""
    return chosen(properties, "partitioner.class", PARTITIONERS, "kafka.producer.DefaultPartitioner")


def _brokers(listed: str) -> list[str]:
    """Return HOST:PORT of each listed broker. The ids in 0.7's form ID:HOST:PORT are removed."""
    texts = [text.strip() for text in listed.split(",")]
    plain = [match[1] if (match := _WITH_ID.fullmatch(text)) else text for text in texts]
    return [host_port(host, port) for host, port in parse_addresses(plain)]


def _pairs(name: str, text: Any) -> Properties:
    """Return the properties in the text `a=b,c=d`. Raise ValueError if a part has no `=`."""
    if isinstance(text, Mapping):
        return text
    pairs = [pair.partition("=") for pair in str(text).split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(f"{name} is {text!r}; write it as NAME=VALUE,NAME=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}
