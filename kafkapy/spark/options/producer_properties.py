"""The options `kafka.*` of the sink: which producer properties are honoured, refused, or without effect.

Source: ProducerConfig of Apache Kafka 3.9, KafkaSourceProvider of Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.client.producing.settings import ProducerSettings, producer_settings
from kafkapy.client.properties import PRODUCER
from kafkapy.spark.options.broker_properties import NO_SECURITY, KafkaOptions
from kafkapy.spark.options.given import BadOption

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
class ProducerProperties(ProducerSettings):
    """The checked options `kafka.*` of the sink.

    Attributes:
        block_s: How long to retry a broker that cannot be reached, in seconds.
        transaction_timeout_s: The broker aborts a transaction after this time. None: use the longest that brokers
            allow.
    """

    block_s: float
    transaction_timeout_s: float | None


def producer_properties(given: Mapping[str, str]) -> ProducerProperties:
    """Return the checked options `kafka.*` of the sink. `given` has their values by name, without that prefix.

    Raises BadOption for a property that is unknown, refused or has an invalid value.
    """
    read = KafkaOptions(given, "producer", "sink")
    read.check_names(honoured=HONOURED, refused=REFUSED, without_effect=PRODUCER, client="Kafka's producer")
    settings = producer_settings(read, client_id="kafkapy-spark", delivery_timeout_ms=120_000, no_security=NO_SECURITY)
    if settings.idempotent and settings.acks != -1:
        raise BadOption(f"kafka.enable.idempotence is true, which needs kafka.acks=all, not {read.text('acks')}")
    return ProducerProperties(
        **vars(settings),
        block_s=read.seconds("max.block.ms", 60_000, least=0),
        transaction_timeout_s=read.seconds("transaction.timeout.ms", 0) or None,
    )
