"""The options `kafka.*` of the sink: producer properties that are honoured, refused, or without effect.

Source: ProducerConfig of Apache Kafka 3.9, KafkaSourceProvider of Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.record.compression import NAMES as CODECS
from kafkapy.spark.options.broker_properties import bootstrap_servers, check_names, check_security
from kafkapy.spark.options.given import BadOption, as_boolean, as_integer, as_word

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

# Kafka's defaults, except for a larger batch.size, as rows come in large Arrow batches, and client.id.
DEFAULTS = {
    "acks": "all",
    "batch.size": str(256 * 1024),
    "client.id": "kafkapy-spark",
    "compression.type": "none",
    "delivery.timeout.ms": "120000",
    "max.block.ms": "60000",
    "max.request.size": "1048576",
    "request.timeout.ms": "30000",
}
HONOURED = ("bootstrap.servers", "enable.idempotence", "security.protocol", "transaction.timeout.ms", *DEFAULTS)
REFUSED = {
    "key.serializer": "keys are written as the bytes, or the UTF-8, of the column key",
    "value.serializer": "values are written as the bytes, or the UTF-8, of the column value",
    "transactional.id": "each task has its own; set their prefix with the option transactionalIdPrefix",
    "partitioner.class": "keys choose a partition as in Kafka; to choose another, fill the column partition",
    "interceptor.classes": "interceptors could change what is written",
}
WITHOUT_EFFECT = frozenset(
    """
    auto.include.jmx.reporter buffer.memory client.dns.lookup compression.gzip.level compression.lz4.level
    compression.zstd.level connections.max.idle.ms enable.metrics.push linger.ms max.in.flight.requests.per.connection
    metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms retries retry.backoff.max.ms retry.backoff.ms security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """.split()  # noqa: SIM905
)
LONGEST_INT = (1 << 31) - 1


@dataclass(frozen=True)
class ProducerProperties:
    """The sink's producer properties.

    Attributes:
        acks: -1: all in-sync replicas; 1: the leader; 0: no response.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes, request_bytes: The largest sizes of a batch before compression and of a request.
        request_timeout_s: The time limit for one response.
        delivery_timeout_s: The time limit for a batch, and for ending a transaction, with all retries.
        block_s: How long to retry a broker that cannot be reached.
        transaction_timeout_s: The broker aborts a transaction that takes longer. None: the broker's maximum.
    """

    bootstrap_servers: str
    client_id: str
    acks: int
    idempotent: bool
    codec: int
    batch_bytes: int
    request_bytes: int
    request_timeout_s: float
    delivery_timeout_s: float
    block_s: float
    transaction_timeout_s: float | None


def producer_properties(given: Mapping[str, str]) -> ProducerProperties:
    """Return the properties in the options `kafka.*`, given without that prefix. Raises BadOption."""
    check_names(
        given, honoured=HONOURED, refused=REFUSED, without_effect=WITHOUT_EFFECT, client="producer", here="sink"
    )
    values = {name: word.strip() for name, word in {**DEFAULTS, **given}.items()}
    servers = bootstrap_servers(given)
    check_security(given)
    acks = ACKS[as_word("kafka.acks", values["acks"], list(ACKS))]
    idempotence = values.get("enable.idempotence")
    idempotent = acks == -1 if idempotence is None else as_boolean("kafka.enable.idempotence", idempotence)
    if idempotent and acks != -1:
        raise BadOption(f"kafka.enable.idempotence is true, which needs kafka.acks=all, not {values['acks']}")
    timeout = values.get("transaction.timeout.ms")
    return ProducerProperties(
        bootstrap_servers=servers,
        client_id=values["client.id"],
        acks=acks,
        idempotent=idempotent,
        codec=CODECS.index(as_word("kafka.compression.type", values["compression.type"], CODECS)),
        batch_bytes=_number(values, "batch.size", least=1),
        request_bytes=_number(values, "max.request.size", least=1),
        request_timeout_s=_number(values, "request.timeout.ms", least=1) / 1000,
        delivery_timeout_s=_number(values, "delivery.timeout.ms", least=1) / 1000,
        block_s=_number(values, "max.block.ms") / 1000,
        transaction_timeout_s=None if timeout is None else _number(values, "transaction.timeout.ms", least=1) / 1000,
    )


def _number(values: Mapping[str, str], name: str, *, least: int = 0) -> int:
    """Return a property as an int. Raises BadOption."""
    number = as_integer(f"kafka.{name}", values[name], least=least)
    if number > LONGEST_INT:
        raise BadOption(f"kafka.{name} is {values[name]!r}: the maximum is {LONGEST_INT}")
    return number
