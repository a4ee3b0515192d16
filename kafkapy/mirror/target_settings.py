"""The settings of the target cluster, from producer properties.

The defaults lose no records, like MirrorMaker's: acks=all, sequence numbers, and retries without limit.
Source: ProducerConfig of Kafka 3.9, MirrorMaker of 0.10.2 and 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.client.producing.settings import ProducerSettings, producer_settings
from kafkapy.client.properties import LONGEST, PRODUCER
from kafkapy.mirror.properties import mirror_properties

# Properties that had another name in Kafka 0.8's producer, the present name first.
NAMES = (
    ("bootstrap.servers", "metadata.broker.list"),
    ("acks", "request.required.acks"),
    ("compression.type", "compression.codec"),
    ("retries", "message.send.max.retries"),
)
HONOURED = frozenset(
    """
    acks batch.size bootstrap.servers client.id compression.type delivery.timeout.ms enable.idempotence linger.ms
    max.request.size request.timeout.ms security.protocol transaction.timeout.ms
    """.split()  # noqa: SIM905
)
_BYTES = "keys and values are copied as they are"
REFUSED = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "serializer.class": _BYTES,
    "key.serializer.class": _BYTES,
    "transactional.id": "with --exactly-once each source partition has its own",
    "partitioner.class": "keys choose a partition as Kafka's producer does; --keep-partitions keeps the source's",
    "interceptor.classes": "interceptors could change what is written",
}
WITHOUT_EFFECT = PRODUCER | {  # and the properties of Kafka 0.8's producer
    "batch.num.messages",
    "producer.type",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queue.enqueue.timeout.ms",
    "topic.metadata.refresh.interval.ms",
}


@dataclass(frozen=True)
class TargetSettings(ProducerSettings):
    """The settings of the producer for the target cluster.

    Attributes:
        linger_s: How long an incomplete batch waits for more records.
        transaction_timeout_s: The time limit for a transaction.
    """

    file: str
    linger_s: float
    transaction_timeout_s: float


def read_target(given: Mapping[str, str], file: str = "the producer's properties") -> TargetSettings:
    """Return the settings of the target from producer properties.

    Raises BadProperty, whose message begins with `file`.
    """
    read = mirror_properties(given, file, NAMES)
    read.check_names(honoured=HONOURED, refused=REFUSED, without_effect=WITHOUT_EFFECT, client="Kafka's producer")
    settings = producer_settings(read, client_id="kafkapy-mirror", delivery_timeout_ms=LONGEST)
    if settings.idempotent and settings.acks != -1:
        raise read.bad(f"enable.idempotence needs acks=all, not {read.text('acks')!r}")
    return TargetSettings(
        **vars(settings),
        file=file,
        linger_s=read.seconds("linger.ms", 100, least=0),
        transaction_timeout_s=read.seconds("transaction.timeout.ms", 60_000),
    )
