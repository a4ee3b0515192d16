"""The metrics of the network: connections, bytes and network threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkapy.network.request_memory import NO_LIMIT
from kafkapy.runtime.counters import Metric, Registry, metric_table

if TYPE_CHECKING:
    from kafkapy.network.connection_rates import ConnectionRates
    from kafkapy.network.drop_behind import DropBehind
    from kafkapy.network.limits import ConnectionLimits
    from kafkapy.network.processor import Processor
    from kafkapy.network.request_memory import RequestMemory
    from kafkapy.network.settings import Listener
    from kafkapy.runtime.clock import Clock

_SOCKET_SERVER = "kafka.server:type=socket-server-metrics"

METRICS = metric_table(
    Metric("network_connections", "gauge", ("listener",), "Open connections.",
           f"{_SOCKET_SERVER}: connection-count"),
    Metric("network_connections_accepted", "counter", (), "Connections that were accepted.",
           f"{_SOCKET_SERVER}: connection-creation-total"),
    Metric("network_connections_rejected", "counter", (),
           "Connections that were closed at once because their address had reached its limit "
           "(max.connections.per.ip)."),
    Metric("network_connection_rate", "gauge", ("listener",),
           "New connections per second of a listener, as max.connection.creation.rate limits them.",
           f"{_SOCKET_SERVER}: connection-accept-rate"),
    Metric("network_broker_connection_rate", "gauge", (),
           "New connections per second of all listeners that the broker's max.connection.creation.rate limits.",
           f"{_SOCKET_SERVER}: broker-connection-accept-rate"),
    Metric("network_address_connection_rate", "gauge", ("address",),
           "New connections per second of an address with a limit (connection_creation_rate), of the 20 addresses "
           "that connect most often.",
           f"{_SOCKET_SERVER}: connection-accept-rate"),
    Metric("network_connections_delayed", "counter", ("listener",),
           "New connections that had to wait because of max.connection.creation.rate."),
    Metric("network_connection_delay_seconds", "counter", ("listener",),
           "How long these connections had to wait, in all.",
           f"{_SOCKET_SERVER}: connection-accept-throttle-time"),
    Metric("network_connections_throttled", "counter", ("listener",),
           "Connections that were not served because their address opens too many per second "
           "(connection_creation_rate)."),
    Metric("network_connection_throttle_seconds", "counter", ("listener",),
           "After how long these connections were closed, in all.",
           f"{_SOCKET_SERVER}: ip-connection-accept-throttle-time"),
    Metric("network_acceptor_pauses", "counter", (),
           "Times that the acceptor stopped accepting on a listener because a connection limit was reached or the "
           "process ran out of descriptors.", "kafka.network:type=Acceptor,name=AcceptorBlockedPercent"),
    Metric("network_bytes_in", "counter", ("processor",), "Bytes received.", f"{_SOCKET_SERVER}: incoming-byte-total"),
    Metric("network_bytes_out", "counter", ("processor",), "Bytes sent.", f"{_SOCKET_SERVER}: outgoing-byte-total"),
    Metric("network_frames_in", "counter", ("processor",), "Requests received."),
    Metric("network_turns", "counter", ("processor",), "Turns of the network thread's loop.",
           f"{_SOCKET_SERVER}: select-total"),
    Metric("network_idle_seconds", "counter", ("processor",), "Time that the network thread had nothing to do.",
           f"{_SOCKET_SERVER}: io-wait-time-ns-total"),
    Metric("network_connections_closed_idle", "counter", ("processor",),
           "Connections that were closed because they were idle for connections.max.idle.ms."),
    Metric("network_authentications", "counter", ("listener", "mechanism"),
           "Connections that have authenticated: by a TLS handshake or a SASL mechanism.",
           f"{_SOCKET_SERVER}: successful-authentication-total"),
    Metric("network_authentication_failures", "counter", ("listener", "mechanism"),
           "Connections that were closed because their TLS handshake or SASL login failed.",
           f"{_SOCKET_SERVER}: failed-authentication-total"),
    Metric("network_connections_without_data", "counter", ("listener",),
           "Connections to a listener with TLS or SASL that were closed before their peer sent anything."),
    Metric("network_connections_authenticating", "gauge", ("processor",),
           "Connections that have not authenticated yet."),
    Metric("network_connections_muted", "gauge", ("processor",),
           "Connections that are not read for a while, because they have exceeded a quota.",
           "kafka.server:type=QUOTA: queue-size"),
    Metric("network_memory_available_bytes", "gauge", (),
           "What queued.max.request.bytes leaves for other large requests; negative if it is exceeded.",
           "kafka.network:type=SocketServer,name=MemoryPoolAvailable"),
    Metric("network_memory_used_bytes", "gauge", (),
           "Memory of large requests that are being received or handled, if queued.max.request.bytes is set.",
           "kafka.network:type=SocketServer,name=MemoryPoolUsed"),
    Metric("network_memory_waiting", "gauge", (), "Connections that wait for memory (queued.max.request.bytes)."),
    Metric("network_memory_depleted_seconds", "counter", (),
           "Time during which connections waited for memory; its rate is the share of the time.",
           f"{_SOCKET_SERVER}: MemoryPoolAvgDepletedPercent, MemoryPoolDepletedTimeTotal"),
    Metric("network_tls_connections", "gauge", ("listener", "cipher", "protocol", "encryption"),
           "Open TLS connections by cipher suite, TLS version, and what encrypts responses: openssl or kernel.",
           f"{_SOCKET_SERVER}: connections"),
    Metric("network_cold_reads", "counter", ("processor",), "Responses that waited for a read from disk."),
    Metric("network_reads_ahead", "counter", ("processor",), "Reads from disk ahead of a consumer."),
    Metric("network_disk_read_bytes", "counter", ("processor",),
           "Bytes read for consumers that read from disk, also those that the kernel has read ahead."),
    Metric("network_dropped_bytes", "counter", (),
           "Bytes to remove from the page cache, because consumers have passed them (kafkapy.drop.behind.enable)."),
    Metric("network_shared_reads", "counter", ("processor",),
           "Reads from disk that a consumer did not need, because another consumer's read has brought the same bytes "
           "into memory."),
    Metric("network_buffer_bytes", "gauge", ("processor",), "Memory of receive buffers that are kept for reuse."),
)  # fmt: skip

_OF_RATES = ("network_connection_rate", "network_broker_connection_rate", "network_address_connection_rate")
_MOST_ADDRESSES = 20

# Metric, attribute of RequestMemory, and the value without a limit.
_OF_MEMORY = (
    ("network_memory_available_bytes", "available", NO_LIMIT),
    ("network_memory_used_bytes", "used", 0),
    ("network_memory_waiting", "waiting", 0),
    ("network_memory_depleted_seconds", "depleted_s", 0),
)

_OF_PROCESSOR = {
    "network_bytes_in": "bytes_in",
    "network_bytes_out": "bytes_out",
    "network_frames_in": "frames_in",
    "network_turns": "turns",
    "network_idle_seconds": "sleeping_s",
    "network_connections_closed_idle": "closed_idle",
    "network_connections_authenticating": "authenticating",
    "network_connections_muted": "muted",
    "network_cold_reads": "cold_reads",
    "network_reads_ahead": "reads_ahead",
    "network_disk_read_bytes": "disk_read_bytes",
    "network_shared_reads": "shared_reads",
    "network_buffer_bytes": "pool.free_bytes",
}


def register(
    counters: Registry,
    listeners: Sequence[Listener],
    limits: ConnectionLimits,
    processors: Sequence[Processor],
    clock: Clock,
    memory: RequestMemory | None,
    behind: DropBehind | None,
) -> None:
    """Register the metrics that are read from these objects. The acceptor registers its own metrics."""
    for listener in listeners:
        counters.register(METRICS["network_connections"], partial(limits.count, listener.name), listener.name)
    counters.register_reader(
        [METRICS[name] for name in _OF_RATES], partial(_rates, limits.rates, [one.name for one in listeners], clock)
    )
    for name, attribute, without_limit in _OF_MEMORY:
        counters.register(METRICS[name], partial(getattr, memory, attribute, without_limit))
    counters.register(METRICS["network_dropped_bytes"], partial(getattr, behind, "dropped_bytes", 0))
    for processor in processors:
        for name, attribute in _OF_PROCESSOR.items():
            counters.register(METRICS[name], partial(attrgetter(attribute), processor), str(processor.index))


def _rates(
    rates: ConnectionRates, listeners: Sequence[str], clock: Clock
) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    of_listener, of_broker, of_address = (METRICS[name] for name in _OF_RATES)
    now_ms = int(clock.monotonic() * 1000)
    for name in listeners:
        yield of_listener, (name,), rates.of_listener(name, now_ms)
    yield of_broker, (), rates.of_broker(now_ms)
    for address, rate in rates.of_addresses(now_ms, _MOST_ADDRESSES):
        yield of_address, (address,), rate
