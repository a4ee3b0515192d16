"""The settings of a producer, read from the properties of Kafka's producer.

Source: ProducerConfig of Kafka 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkapy.client.properties import ClientProperties
from kafkapy.client.security import Security, read_security
from kafkapy.record.compression import NAMES as CODECS

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


@dataclass(frozen=True)
class ProducerSettings:
    """The settings that all producers read from properties.

    Attributes:
        acks: -1: all in-sync replicas; 1: the leader; 0: no response.
        codec: The compression. 0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd.
        batch_bytes, request_bytes: The largest size of a batch before compression, and of a request.
        request_timeout_s: The time limit for one response.
        delivery_timeout_s: The time limit for a batch, and for ending a transaction, with all retries.
    """

    bootstrap_servers: str
    security: Security
    client_id: str
    acks: int
    idempotent: bool
    codec: int
    batch_bytes: int
    request_bytes: int
    request_timeout_s: float
    delivery_timeout_s: float


def producer_settings(
    read: ClientProperties, *, client_id: str, delivery_timeout_ms: int, no_security: str = ""
) -> ProducerSettings:
    """Read a producer's settings from the properties `read`. Raise the properties' error for an invalid value.

    `no_security` are the words for warnings about properties of a security protocol that is not used.
    The defaults are Kafka's, except for `client_id`, `delivery_timeout_ms` and a larger batch.size. The combination of
    enable.idempotence=true with acks other than all is not checked here; the caller refuses it.
    """
    acks = read.word("acks", ACKS, "all")
    return ProducerSettings(
        bootstrap_servers=read.servers(),
        security=read_security(read, no_security),
        client_id=read.text("client.id", client_id),
        acks=acks,
        idempotent=read.flag("enable.idempotence", acks == -1),
        codec=read.word("compression.type", {name: codec for codec, name in enumerate(CODECS)}, "none"),
        batch_bytes=read.number("batch.size", 256 * 1024, least=1),
        request_bytes=read.number("max.request.size", 1 << 20, least=1),
        request_timeout_s=read.seconds("request.timeout.ms", 30_000),
        delivery_timeout_s=read.seconds("delivery.timeout.ms", delivery_timeout_ms),
    )
