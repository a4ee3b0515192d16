"""Broker settings: listeners, sockets and limits on connections."""

from __future__ import annotations

from kafkapy.runtime.config_def import INT_MAX, OneOf, Range
from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.server.config.keys.row import HIGH, LOW, MEDIUM, Row

ROWS: tuple[Row, ...] = (
    ("listeners", T.STRING, "PLAINTEXT://:9092", None, HIGH, "EB",
     "Comma-separated addresses to listen on, as NAME://HOST:PORT; port 0: the system chooses the port."),
    ("advertised.listeners", T.STRING, None, None, HIGH, "EB",
     "Addresses to which clients connect; if not set, those of listeners."),
    ("listener.security.protocol.map", T.STRING,
     "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None, LOW, "EB",
     "Security protocol of each listener name."),
    ("inter.broker.listener.name", T.STRING, None, None, MEDIUM, "E", "Listener that the other brokers use."),
    ("security.inter.broker.protocol", T.STRING,
     "PLAINTEXT", OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM, "E",
     "Security protocol between brokers, if inter.broker.listener.name is not set."),
    ("control.plane.listener.name", T.STRING, None, None, HIGH, "",
     "Listener reserved for requests of the controller."),
    ("early.start.listeners", T.STRING, None, None, HIGH, "", "Listeners that open before the authorizer is ready."),
    ("num.network.threads", T.INT, 3, Range(1), HIGH, "EC",
     "Threads that receive, handle and answer requests, for all listeners together."),
    ("socket.send.buffer.bytes", T.INT, 102400, None, HIGH, "E",
     "SO_SNDBUF of a connection; -1: the system's default."),
    ("socket.receive.buffer.bytes", T.INT, 102400, None, HIGH, "E",
     "SO_RCVBUF of a connection; -1: the system's default."),
    ("socket.listen.backlog.size", T.INT, 50, Range(1), MEDIUM, "E", "Most connections that wait to be accepted."),
    ("socket.request.max.bytes", T.INT, 104857600, Range(1), HIGH, "E",
     "Largest request; a connection that sends a larger one is closed."),
    ("connections.max.idle.ms", T.LONG, 600000, None, MEDIUM, "E", "Idle time after which a connection is closed."),
    ("connections.max.reauth.ms", T.LONG, 0, None, MEDIUM, "E",
     "Longest time without a new authentication on a SASL connection; 0: no limit."),
    ("connection.failed.authentication.delay.ms", T.INT, 100, Range(0), LOW, "E",
     "Delay before a connection that failed to authenticate is closed."),
    ("max.connections", T.INT, INT_MAX, Range(0), MEDIUM, "EC",
     "Most connections open at the same time, of the broker and of each listener."),
    ("max.connections.per.ip", T.INT, INT_MAX, Range(0), MEDIUM, "EC",
     "Most connections open at the same time from one address."),
    ("max.connections.per.ip.overrides", T.STRING, "", None, MEDIUM, "EC",
     "Limits for single addresses, as a comma-separated list of HOST:NUMBER."),
    ("max.connection.creation.rate", T.INT, INT_MAX, Range(0), MEDIUM, "EC",
     "Most new connections per second, of the broker and of each listener; more have to wait."),
    ("socket.connection.setup.timeout.ms", T.LONG, 10000, None, MEDIUM, "E",
     "Time-out for connections that this broker opens."),
    ("socket.connection.setup.timeout.max.ms", T.LONG, 30000, None, MEDIUM, "",
     "Upper bound of that time-out, which grows with repeated failures."),
)  # fmt: skip
