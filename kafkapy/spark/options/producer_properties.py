"""The options `kafka.*` of the sink: producer properties that are honoured, refused, or without effect.

Source: ProducerConfig of Apache Kafka 3.9, KafkaSourceProvider of Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.client.properties import PRODUCER
from kafkapy.record.compression import NAMES as CODECS
from kafkapy.spark.options.broker_properties import NO_SECURITY, KafkaOptions
from kafkapy.spark.options.given import BadOption

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

HONOURED = frozenset(
    """
    acks batch.size bootstrap.servers client.id compression.type delivery.timeout.ms enable.idempotence max.block.ms
    max.request.size request.timeout.ms security.protocol transaction.timeout.ms
    """.split()  # noqa: SIM905
)
REFUSED = {
    "key.serializer": "keys are written as the bytes, or the UTF-8, of the column key",
    "value.serializer": "values are written as the bytes, or the UTF-8, of the column value",
    "transactional.id": "each task has its own; set their prefix with the option transactionalIdPrefix",
    "partitioner.class": "keys choose a partition as in Kafka; to choose another, fill the column partition",
    "interceptor.classes": "interceptors could change what is written",
}


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
    read = KafkaOptions(given, "producer", "sink")
    read.check_names(honoured=HONOURED, refused=REFUSED, without_effect=PRODUCER, client="Kafka's producer")
    servers = read.servers()
    read.check_security(NO_SECURITY)
    acks = read.word("acks", ACKS, "all")
    idempotent = read.flag("enable.idempotence", acks == -1)
    if idempotent and acks != -1:
        raise BadOption(f"kafka.enable.idempotence is true, which needs kafka.acks=all, not {read.text('acks')}")
    # Kafka's defaults, except for a larger batch.size, as rows come in large Arrow batches, and client.id.
    return ProducerProperties(
        bootstrap_servers=servers,
        client_id=read.text("client.id", "kafkapy-spark"),
        acks=acks,
        idempotent=idempotent,
        codec=read.word("compression.type", {name: codec for codec, name in enumerate(CODECS)}, "none"),
        batch_bytes=read.number("batch.size", 256 * 1024, least=1),
        request_bytes=read.number("max.request.size", 1 << 20, least=1),
        request_timeout_s=read.seconds("request.timeout.ms", 30_000),
        delivery_timeout_s=read.seconds("delivery.timeout.ms", 120_000),
        block_s=read.seconds("max.block.ms", 60_000, least=0),
        transaction_timeout_s=read.seconds("transaction.timeout.ms", 0) or None,
    )
