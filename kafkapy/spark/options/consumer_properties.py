"""The options `kafka.*` of the source: consumer properties that are honoured, refused (as by Spark), or without effect.

Source: ConsumerConfig of Apache Kafka 3.9, KafkaSourceProvider of Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.client.fetched import ISOLATION_LEVELS, Isolation
from kafkapy.client.properties import CONSUMER
from kafkapy.client.security import Security, read_security
from kafkapy.spark.options.broker_properties import NO_SECURITY, KafkaOptions

ISOLATION: tuple[Isolation, ...] = tuple(ISOLATION_LEVELS)

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
WITHOUT_EFFECT = CONSUMER.difference(HONOURED, REFUSED)


@dataclass(frozen=True)
class ConsumerProperties:
    """The checked options `kafka.*` of the source.

    Attributes:
        client_id: The client id for requests, or None if the user has set neither a client id nor a group id.
        request_timeout_s: The time limit for one request.
        api_timeout_s: How long the driver retries a broker that it has reached before.
    """

    bootstrap_servers: str
    client_id: str | None
    security: Security
    isolation: Isolation
    request_timeout_s: float
    api_timeout_s: float


def consumer_properties(given: Mapping[str, str]) -> ConsumerProperties:
    """Return the checked options `kafka.*` of the source. `given` has their values by name, without that prefix.

    Raises BadOption for a property that is unknown, refused or has an invalid value.
    """
    read = KafkaOptions(given, "consumer", "source")
    read.check_names(honoured=HONOURED, refused=REFUSED, without_effect=WITHOUT_EFFECT, client="Kafka's consumer")
    servers = read.servers()
    security = read_security(read, NO_SECURITY)
    if "group.id" in read:
        read.warn(
            "kafka.group.id only names the client: the source joins no group and commits no offsets, its position "
            "is in Spark's checkpoint"
        )
    return ConsumerProperties(
        bootstrap_servers=servers,
        client_id=read.text("client.id") or read.text("group.id") or None,
        security=security,
        isolation=read.word("isolation.level", {name: name for name in ISOLATION}, ISOLATION[0]),
        request_timeout_s=read.seconds("request.timeout.ms", 30_000, least=0),
        api_timeout_s=read.seconds("default.api.timeout.ms", 60_000, least=0),
    )
