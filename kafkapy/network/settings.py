"""Settings of the network: the listeners, and the settings for sockets and connections from Kafka's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.rates import Windows

UNLIMITED = 2_147_483_647
_NONE: Mapping[str, int] = MappingProxyType({})


class Listener(NamedTuple):
    """A listener: its name, and the host and port on which the server listens.

    `host` is a name or an IPv4 or IPv6 address without brackets; "" and "::" stand for all interfaces with IPv4 and
    IPv6. Port 0 stands for any free port. `setting` is where a person sets the port, for error messages.
    """

    name: str
    host: str
    port: int
    setting: str = "'listeners'"

    def __str__(self) -> str:
        return f"{self.name}://{host_port(self.host, self.port)}"


class NetworkSettings(NamedTuple):
    """The settings of the socket server, named after the settings of Apache Kafka 3.9.

    The defaults are Kafka's, except where a comment gives Kafka's default. Apache Kafka does not have the settings
    after the blank line.
    """

    num_network_threads: int = 1  # Kafka: 3. One thread is best because of the GIL: docs/performance.md
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1  # of large requests that are received or in progress; not positive: no limit
    # Kafka: 102,400, which one sendfile call fills. With twice the size a single consumer gets a third more bytes a
    # second, with fewer wake-ups. -1: the operating system's default.
    socket_send_buffer_bytes: int = 204_800
    # Kafka: 102,400. -1 is the operating system's default, which grows with the traffic: a third of the CPU per GiB.
    socket_receive_buffer_bytes: int = -1
    socket_listen_backlog_size: int = 4096  # Kafka: 50, too few when a thousand clients connect at the same time
    max_connections: int = UNLIMITED
    max_connections_per_listener: Mapping[str, int] = _NONE
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = _NONE
    max_connection_creation_rate: int = UNLIMITED  # a second
    max_connection_creation_rate_per_listener: Mapping[str, int] = _NONE
    quota_windows: Windows = Windows()  # of the rates of new connections
    connections_max_idle_ms: int = 600_000  # negative: never
    # This listener may exceed max_connections; then the connection of another listener that was idle longest is closed.
    inter_broker_listener: str | None = None

    zero_copy: bool = True  # kafkapy.zero.copy.enable
    copy_below: int = 8192  # regions shorter than this are copied: sendfile costs more
    # kafkapy.read.ahead.bytes, for one reader; 0: no read-ahead. Short on purpose: where the kernel itself reads far
    # ahead (8 MiB), reading before the kernel costs a third of the rate (measured: 1.06 GiB/s; 1.51 with 2 MiB or 0).
    read_ahead_bytes: int = 2 << 20
    read_ahead_max_bytes: int = 64 << 20  # kafkapy.read.ahead.max.bytes: for all readers together
    drop_behind: bool = True  # kafkapy.drop.behind.enable
    authentication_timeout_ms: int = 30_000  # kafkapy.authentication.timeout.ms: TLS handshake and SASL login together
    max_connections_authenticating: int = 2000  # kafkapy.max.connections.authenticating
    max_frames_a_turn: int = 64  # frames of a connection that one call of the handler gets
    buffer_pool_bytes: int = 32 << 20  # free receive buffers that a processor keeps
    drain_s: float = 5.0  # how long a stop waits for replies that are in progress
