"""The metrics of sessions of SASL clients. First logins are counted by the network (`kafkapy.network.logins`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy.runtime.counters import LabelledCounters, Metric, Registry, metric_table
from kafkapy.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.server.logins")

_SOCKET_SERVER = "kafka.server:type=socket-server-metrics"

METRICS = metric_table(
    Metric("network_reauthentications", "counter", ("listener",),
           "Sessions of SASL clients that were extended by another login.",
           f"{_SOCKET_SERVER}: successful-reauthentication-total"),
    Metric("network_reauthentication_failures", "counter", ("listener",),
           "Connections that were closed because the login that was to extend their session failed.",
           f"{_SOCKET_SERVER}: failed-reauthentication-total"),
    Metric("network_sessions_expired", "counter", ("listener",),
           "Connections that were closed because of a request after the end of the client's session.",
           f"{_SOCKET_SERVER}: expired-connections-killed-count"),
)  # fmt: skip


class LoginMeters:
    """Counts re-authentications and expired sessions, and logs those that close a connection. Any thread may call the
    methods."""

    def __init__(self, counters: Registry, clock: Clock) -> None:
        self._counts = LabelledCounters(counters, METRICS.values())
        self._lines = LineLimit(clock)

    def reauthenticated(self, listener: str) -> None:
        self._counts.add(METRICS["network_reauthentications"], listener)

    def reauthentication_failed(self, conn: Connection, reason: str) -> None:
        """Count a re-authentication that failed. Log it, unless there are too many such lines."""
        self._counts.add(METRICS["network_reauthentication_failures"], conn.listener)
        left_out = self._lines.admit(conn.principal)
        if left_out is not None:
            log.warning("re-authentication of %s failed: %s%s", conn.principal, reason, left_out, extra=conn.who)

    def expired(self, conn: Connection) -> None:
        """Count a request after the end of a session. Log it, unless there are too many such lines."""
        self._counts.add(METRICS["network_sessions_expired"], conn.listener)
        left_out = self._lines.admit(conn.principal)
        if left_out is not None:
            log.info("closed a connection of %s: its session has expired%s", conn.principal, left_out, extra=conn.who)
