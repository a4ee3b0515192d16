"""The options `kafka.*` of the source: consumer properties that are honoured, refused (as by Spark), or without effect.

Source: ConsumerConfig of Apache Kafka 3.9, KafkaSourceProvider of Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.client.fetched import Isolation
from kafkapy.spark.options.broker_properties import bootstrap_servers, check_names, check_security, warn_once
from kafkapy.spark.options.given import as_integer, as_word

ISOLATION: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")

HONOURED = (
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "group.id",
    "isolation.level",
    "request.timeout.ms",
    "security.protocol",
)
REFUSED = {
    "auto.offset.reset": "startingOffsets says where a query starts, and it continues where it stopped",
    "key.deserializer": "keys are bytes; cast them with DataFrame operations",
    "value.deserializer": "values are bytes; cast them with DataFrame operations",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "interceptor.classes": "interceptors could change what is read",
}
WITHOUT_EFFECT = frozenset(
    [
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "internal.leave.group.on.close",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    ]
)


@dataclass(frozen=True)
class ConsumerProperties:
    """The source's consumer properties.

    Attributes:
        client_id: None: the source chooses one.
        request_timeout_s: The time limit for one request.
        api_timeout_s: How long a broker that was reached before is retried.
    """

    bootstrap_servers: str
    client_id: str | None
    isolation: Isolation
    request_timeout_s: float
    api_timeout_s: float


def consumer_properties(given: Mapping[str, str]) -> ConsumerProperties:
    """Return the properties in the options `kafka.*`, given without that prefix. Raises BadOption."""
    check_names(
        given, honoured=HONOURED, refused=REFUSED, without_effect=WITHOUT_EFFECT, client="consumer", here="source"
    )
    servers = bootstrap_servers(given)
    check_security(given)
    if "group.id" in given:
        warn_once(
            "kafka.group.id only names the client: the source joins no group and commits no offsets, its position "
            "is in Spark's checkpoint"
        )
    isolation = as_word("kafka.isolation.level", given.get("isolation.level", ISOLATION[0]).strip(), ISOLATION)
    return ConsumerProperties(
        bootstrap_servers=servers,
        client_id=given.get("client.id") or given.get("group.id"),
        isolation=isolation,
        request_timeout_s=_seconds(given, "request.timeout.ms", "30000"),
        api_timeout_s=_seconds(given, "default.api.timeout.ms", "60000"),
    )


def _seconds(given: Mapping[str, str], name: str, default: str) -> float:
    """Return a property in milliseconds as seconds."""
    return as_integer(f"kafka.{name}", given.get(name, default).strip()) / 1000
