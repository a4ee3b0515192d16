"""Counts the open TLS connections by protocol and cipher suite, as Kafka's Selector does."""

from __future__ import annotations

import ssl

from kafkapy.network.metrics import METRICS
from kafkapy.runtime.counters import LabelledCounters, Registry
from kafkapy.security.tls.ciphers import java_name

_CONNECTIONS = METRICS["network_tls_connections"]


class TlsConnections:
    """The number of TLS connections whose handshake is over. Any thread may use it.

    Connections are counted by listener, cipher suite (Java's name), protocol, and what encrypts replies: openssl or
    kernel.
    """

    def __init__(self, counters: Registry) -> None:
        self._open = LabelledCounters(counters, [_CONNECTIONS])

    def add(self, listener: str, tls: ssl.SSLObject, encrypted_by: str) -> tuple[str, str, str, str]:
        """Count one more connection. Return the labels to pass to `remove` when the connection is closed."""
        cipher = tls.cipher()
        labels = (listener, java_name(cipher[0]) if cipher else "", tls.version() or "", encrypted_by)
        self._open.add(_CONNECTIONS, *labels)
        return labels

    def remove(self, labels: tuple[str, str, str, str]) -> None:
        self._open.add(_CONNECTIONS, *labels, by=-1)
