"""The settings of a source cluster, from consumer properties.

With `zookeeper.connect`, the mirror reads the source as a member of a group in ZooKeeper, and the property names are
those of Kafka 0.7 to 0.10. With `bootstrap.servers`, the mirror reads the source as a member of a Kafka group, and the
property names are those of Kafka's consumer.
Source: ConsumerConfig of Kafka 0.8.2 and 3.9, MirrorMaker of 0.10.2 and 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kafkapy.client.fetched import Isolation
from kafkapy.client.original.consuming.settings import NAMES, ConsumerSettings, consumer_settings
from kafkapy.client.properties import CONSUMER, ClientProperties
from kafkapy.client.security import Security, read_security
from kafkapy.metadata.zookeeper.properties import SECURITY
from kafkapy.mirror.properties import mirror_properties

Reset = Literal["earliest", "latest", "none"]

ASSIGNORS = {
    "org.apache.kafka.clients.consumer.rangeassignor": "range",
    "org.apache.kafka.clients.consumer.roundrobinassignor": "roundrobin",
    "org.apache.kafka.clients.consumer.stickyassignor": "sticky",
    "org.apache.kafka.clients.consumer.cooperativestickyassignor": "cooperative-sticky",
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "cooperative-sticky",
}
RESETS: dict[str, Reset] = {"earliest": "earliest", "latest": "latest", "none": "none"}
ISOLATIONS: dict[str, Isolation] = {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}

_COMMITS = "the mirror commits what the target has acknowledged"
_BYTES = "keys and values are copied as they are"
HONOURED = frozenset(
    """
    auto.offset.reset bootstrap.servers client.id client.rack fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    metadata.max.age.ms partition.assignment.strategy request.timeout.ms security.protocol session.timeout.ms
    """.split()  # noqa: SIM905
)
REFUSED = {
    "enable.auto.commit": _COMMITS,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "interceptor.classes": "interceptors could change what is read",
    "group.protocol": "kafkapy's client supports the classic protocol only",
    "group.remote.assignor": "kafkapy's client supports the classic group protocol only",
    "exclude.internal.topics": "brokers refuse records for their internal topics",
}
# For a group in ZooKeeper.
REFUSED_IN_ZOOKEEPER = {
    "auto.commit.enable": _COMMITS,
    "exclude.internal.topics": REFUSED["exclude.internal.topics"],
}
WITHOUT_EFFECT_IN_ZOOKEEPER = frozenset(
    """
    auto.commit.interval.ms consumer.timeout.ms offsets.channel.backoff.ms offsets.commit.max.retries
    num.consumer.fetchers socket.receive.buffer.bytes socket.buffersize zookeeper.sync.time.ms zk.synctime.ms
    backoff.increment.ms shallowiterator.enable mirror.topics.whitelist mirror.topics.blacklist
    mirror.consumer.numthreads
    """.split()  # noqa: SIM905
)
HONOURED_IN_ZOOKEEPER = {present for present, *_ in NAMES}.union(SECURITY, {"security.protocol"}).difference(
    REFUSED_IN_ZOOKEEPER, WITHOUT_EFFECT_IN_ZOOKEEPER
)


@dataclass(frozen=True)
class GroupSource:
    """The settings of a source that is read as a member of a Kafka consumer group."""

    file: str
    bootstrap_servers: str
    security: Security
    group_id: str
    client_id: str
    auto_offset_reset: Reset
    isolation: Isolation
    assignors: tuple[str, ...]
    instance_id: str | None
    rack: str | None
    request_timeout_s: float
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    metadata_max_age_s: float
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int

    def of_stream(self, number: int, streams: int) -> GroupSource:
        """Return the settings for stream `number` of several streams, each with its own group.instance.id."""
        if self.instance_id is None or streams == 1:
            return self
        return replace(self, instance_id=f"{self.instance_id}-{number}")


@dataclass(frozen=True)
class ZooKeeperSource:
    """The settings of a source that is read as a member of a ZooKeeper group.

    `properties` are the properties for the ConsumerConnector, and `settings` the values parsed from them.
    """

    file: str
    settings: ConsumerSettings
    properties: Mapping[str, str] = field(hash=False, repr=False)

    @property
    def group_id(self) -> str:
        return self.settings.group_id

    def of_stream(self, number: int, streams: int) -> ZooKeeperSource:
        """Return the settings for stream `number` of several streams, each with its own consumer.id."""
        consumer_id = self.settings.consumer_id
        if consumer_id is None or streams == 1:
            return self
        return replace(self, properties={**self.properties, "consumer.id": f"{consumer_id}-{number}"})


SourceSettings = GroupSource | ZooKeeperSource


def read_source(given: Mapping[str, str], file: str = "the consumer's properties") -> SourceSettings:
    """Return the settings of a source from consumer properties. Raises BadProperty, whose message begins with `file`.

    The result is a ZooKeeperSource if zookeeper.connect is set, else a GroupSource.
    """
    if "zookeeper.connect" in given or "zk.connect" in given:
        return _in_zookeeper(mirror_properties(given, file, NAMES), file)
    return _in_kafka(mirror_properties(given, file), file)


def _in_kafka(read: ClientProperties, file: str) -> GroupSource:
    """Return the settings of a source that is read as a member of a Kafka group. Raises BadProperty."""
    if "bootstrap.servers" not in read:
        raise read.bad("it names no cluster; set bootstrap.servers, or zookeeper.connect for a group in ZooKeeper")
    read.check_names(honoured=HONOURED, refused=REFUSED, without_effect=CONSUMER, client="Kafka's consumer")
    session_s = read.seconds("session.timeout.ms", 45_000)
    heartbeat_s = read.seconds("heartbeat.interval.ms", 3_000)
    if heartbeat_s >= session_s:
        raise read.bad(
            f"heartbeat.interval.ms is {heartbeat_s * 1000:.0f}; it must be below session.timeout.ms, which is "
            f"{session_s * 1000:.0f}"
        )
    return GroupSource(
        file=file,
        bootstrap_servers=read.servers(),
        security=read_security(read),
        group_id=read.needed("group.id", "mirror"),
        client_id=read.text("client.id", "kafkapy-mirror"),
        auto_offset_reset=read.word("auto.offset.reset", RESETS, "earliest"),
        isolation=read.word("isolation.level", ISOLATIONS, "read_committed"),
        assignors=_assignors(read),
        instance_id=read.text("group.instance.id") or None,
        rack=read.text("client.rack") or None,
        request_timeout_s=read.seconds("request.timeout.ms", 30_000),
        session_timeout_s=session_s,
        heartbeat_interval_s=heartbeat_s,
        max_poll_interval_s=read.seconds("max.poll.interval.ms", 300_000),
        metadata_max_age_s=read.seconds("metadata.max.age.ms", 300_000, least=0),
        max_wait_ms=read.number("fetch.max.wait.ms", 500, least=0),
        min_bytes=read.number("fetch.min.bytes", 1, least=0),
        max_bytes=read.number("fetch.max.bytes", 50 << 20),
        partition_bytes=read.number("max.partition.fetch.bytes", 1 << 20),
    )


def _assignors(read: ClientProperties) -> tuple[str, ...]:
    """Return the short names of the assignors in partition.assignment.strategy.

    The property may have Kafka's Java class names or the short names. Raises BadProperty for unknown names.
    """
    value = read.text("partition.assignment.strategy", "range,cooperative-sticky")
    words = [word.strip() for word in value.split(",") if word.strip()]
    wrong = [word for word in words if word.lower() not in ASSIGNORS]
    if wrong or not words:
        raise read.bad(
            f"partition.assignment.strategy is {value!r}; it can be one or more of range, roundrobin, sticky, "
            "cooperative-sticky, or the names of Kafka's classes for them"
        )
    return tuple(ASSIGNORS[word.lower()] for word in words)


def _in_zookeeper(read: ClientProperties, file: str) -> ZooKeeperSource:
    """Return the settings of a source that is read as a member of a group in ZooKeeper. Raises BadProperty."""
    if "bootstrap.servers" in read:
        raise read.bad("zookeeper.connect and bootstrap.servers exclude each other; remove one of them")
    read.check_names(
        honoured=HONOURED_IN_ZOOKEEPER,
        refused=REFUSED_IN_ZOOKEEPER,
        without_effect=WITHOUT_EFFECT_IN_ZOOKEEPER,
        client="Kafka's consumer in ZooKeeper",
    )
    used = HONOURED_IN_ZOOKEEPER.union(read_security(read).names)
    own = {name: read.text(name) for name in read if name in used}
    own = {"auto.offset.reset": "smallest", **own, "auto.commit.enable": "false"}
    try:
        return ZooKeeperSource(file, consumer_settings(own), own)
    except ValueError as error:
        raise read.bad(str(error)) from None
