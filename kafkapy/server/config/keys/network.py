"""Broker settings: listeners, sockets and limits on connections."""

from __future__ import annotations

from kafkapy.runtime.config_def import INT_MAX, OneOf, Range
from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.server.config.keys.row import HIGH, LOW, MEDIUM, Row

ROWS: tuple[Row, ...] = (
    ("listeners", T.STRING, "PLAINTEXT://:9092", None, HIGH, "EB",
     "Addresses to listen on, as NAME://HOST:PORT with commas between; port 0 lets the system choose."),
    ("advertised.listeners", T.STRING, None, None, HIGH, "EB",
     "Addresses to which clients connect; empty means those of listeners."),
    ("listener.security.protocol.map", T.STRING,
     "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None, LOW, "EB",
     "Security protocol of each listener name."),
    ("inter.broker.listener.name", T.STRING, None, None, MEDIUM, "E", "Listener that the other brokers use."),
    ("security.inter.broker.protocol", T.STRING,
     "PLAINTEXT", OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM, "E",
     "Security protocol between brokers, where inter.broker.listener.name is not set."),
    ("control.plane.listener.name", T.STRING, None, None, HIGH, "", "Listener kept apart for the controller."),
    ("early.start.listeners", T.STRING, None, None, HIGH, "", "Listeners opened before the authorizer is ready."),
    ("num.network.threads", T.INT, 3, Range(1), HIGH, "EC",
     "Threads that receive, handle and answer requests, for all listeners together."),
    ("socket.send.buffer.bytes", T.INT, 102400, None, HIGH, "E", "SO_SNDBUF of a connection; -1 leaves the system's."),
    ("socket.receive.buffer.bytes", T.INT, 102400, None, HIGH, "E",
     "SO_RCVBUF of a connection; -1 leaves the system's."),
    ("socket.listen.backlog.size", T.INT, 50, Range(1), MEDIUM, "E", "Connections that may wait to be accepted."),
    ("socket.request.max.bytes", T.INT, 104857600, Range(1), HIGH, "E",
     "Largest request; a connection that announces more is closed."),
    ("connections.max.idle.ms", T.LONG, 600000, None, MEDIUM, "E", "Silence after which a connection is closed."),
    ("connections.max.reauth.ms", T.LONG, 0, None, MEDIUM, "",
     "Longest life of a SASL session without authenticating again; 0 is no limit."),
    ("connection.failed.authentication.delay.ms", T.INT, 100, Range(0), LOW, "",
     "Wait before a connection that failed to authenticate is closed."),
    ("max.connections", T.INT, INT_MAX, Range(0), MEDIUM, "EC", "Connections open at once."),
    ("max.connections.per.ip", T.INT, INT_MAX, Range(0), MEDIUM, "EC", "Connections open at once from one address."),
    ("max.connections.per.ip.overrides", T.STRING, "", None, MEDIUM, "EC",
     "Limits of single addresses, as HOST:NUMBER with commas between."),
    ("max.connection.creation.rate", T.INT, INT_MAX, Range(0), MEDIUM, "C", "New connections accepted in a second."),
    ("socket.connection.setup.timeout.ms", T.LONG, 10000, None, MEDIUM, "",
     "Wait for a connection that this broker opens."),
    ("socket.connection.setup.timeout.max.ms", T.LONG, 30000, None, MEDIUM, "",
     "Upper bound of that wait after repeated failures."),
)  # fmt: skip
