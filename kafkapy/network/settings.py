"""What the network is told: listeners and the settings that Kafka's configuration has for sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkapy.runtime.addresses import host_port

UNLIMITED = 2_147_483_647


@dataclass(frozen=True)
class Listener:
    """An address to listen on. `host` is a name or an IPv4 or IPv6 address (no brackets); "" is every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{host_port(self.host, self.port)}"


@dataclass(frozen=True)
class NetworkSettings:
    """Apache Kafka 3.9's names and defaults where nothing else is said; the last block has no Kafka name."""

    num_network_threads: int = 1  # Kafka: 3. One is best while Python has one lock; see DESIGN §3
    socket_request_max_bytes: int = 104_857_600
    # Kafka: 102,400, which sendfile fills at once: a third more for one consumer, and fewer wake-ups. -1: the system's.
    socket_send_buffer_bytes: int = 204_800
    # Kafka: 102,400. -1 is what the system gives, which grows with the traffic: a third of the CPU a GiB received.
    socket_receive_buffer_bytes: int = -1
    socket_listen_backlog_size: int = 4096  # Kafka: 50, of which a thousand clients at once are not taken in
    max_connections: int = UNLIMITED
    max_connections_per_listener: Mapping[str, int] = field(default_factory=dict)
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000  # negative: never
    inter_broker_listener: str | None = None  # may exceed max_connections at the cost of the others' idlest

    zero_copy: bool = True  # kafkapy.zero.copy.enable
    copy_below: int = 8192  # regions shorter than this are copied: sendfile costs more
    # kafkapy.read.ahead.bytes: of one reader; 0: nothing is read ahead. Short on purpose: where the kernel itself reads
    # far ahead (8 MiB), being before it costs a third of the rate (measured: 1.06 GiB/s; 1.51 with 2 MiB or none).
    read_ahead_bytes: int = 2 << 20
    read_ahead_max_bytes: int = 64 << 20  # kafkapy.read.ahead.max.bytes: of all together
    max_frames_a_turn: int = 64  # of one connection, handed to the handler at once
    buffer_pool_bytes: int = 32 << 20  # free receive buffers a processor keeps warm
    drain_s: float = 5.0  # how long a stop waits for replies that are under way
