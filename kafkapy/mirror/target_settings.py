"""The settings of the target cluster, from producer properties.

The defaults lose nothing, like MirrorMaker's: acks=all, sequence numbers, and retries without limit.
Source: ProducerConfig of Kafka 3.9, MirrorMaker of 0.10.2 and 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.mirror.properties import LONGEST, Properties
from kafkapy.record.compression import NAMES as CODECS

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
SWITCH = {"true": True, "false": False}
# Names of Kafka 0.8's producer, and their present names.
OLD_NAMES = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
}
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
WITHOUT_EFFECT = frozenset(
    """
    auto.include.jmx.reporter batch.num.messages buffer.memory client.dns.lookup compression.gzip.level
    compression.lz4.level compression.zstd.level connections.max.idle.ms enable.metrics.push max.block.ms
    max.in.flight.requests.per.connection metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.ignore.keys producer.type
    queue.buffering.max.messages queue.buffering.max.ms queue.enqueue.timeout.ms receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms retries retry.backoff.max.ms retry.backoff.ms security.providers
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    topic.metadata.refresh.interval.ms
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class TargetSettings:
    """The settings of the target's producer.

    Attributes:
        acks: -1: all in-sync replicas; 1: the leader; 0: no response.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        batch_bytes, request_bytes: The largest sizes of a batch before compression and of a request.
        linger_s: How long an incomplete batch waits for more records.
        delivery_timeout_s: The time limit for a batch with all retries.
        transaction_timeout_s: The time limit for a transaction.
    """

    file: str
    bootstrap_servers: str
    client_id: str
    acks: int
    idempotent: bool
    codec: int
    batch_bytes: int
    request_bytes: int
    linger_s: float
    request_timeout_s: float
    delivery_timeout_s: float
    transaction_timeout_s: float


def read_target(given: Mapping[str, str], file: str = "the producer's properties") -> TargetSettings:
    """Return the settings of the target. Raises BadProperty."""
    read = Properties(file, _with_present_names(given, file))
    read.check_names(honoured=HONOURED, refused=REFUSED, without_effect=WITHOUT_EFFECT, client="Kafka's producer")
    read.check_security()
    acks = read.word("acks", ACKS, "all")
    idempotent = read.word("enable.idempotence", SWITCH, "true" if acks == -1 else "false")
    if idempotent and acks != -1:
        raise read.bad(f"enable.idempotence needs acks=all, not {read.text('acks')!r}")
    return TargetSettings(
        file=file,
        bootstrap_servers=read.servers("bootstrap.servers"),
        client_id=read.text("client.id", "kafkapy-mirror"),
        acks=acks,
        idempotent=idempotent,
        codec=read.word("compression.type", {name: codec for codec, name in enumerate(CODECS)}, "none"),
        batch_bytes=read.number("batch.size", 256 * 1024),
        request_bytes=read.number("max.request.size", 1 << 20),
        linger_s=read.seconds("linger.ms", 100, least=0),
        request_timeout_s=read.seconds("request.timeout.ms", 30_000),
        delivery_timeout_s=read.seconds("delivery.timeout.ms", LONGEST),
        transaction_timeout_s=read.seconds("transaction.timeout.ms", 60_000),
    )


def _with_present_names(given: Mapping[str, str], file: str) -> dict[str, str]:
    """Return the properties with old names replaced. Raise BadProperty for a property given twice."""
    found: dict[str, str] = {}
    for name, value in given.items():
        present = OLD_NAMES.get(name, name)
        if present != name and present in given:
            raise Properties(file, given).bad(
                f"{name} is the old name of {present}, which is given too; remove one of them"
            )
        found[present] = value
    return found
