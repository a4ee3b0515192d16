"""Connections that have not authenticated yet: their time limit, their largest number, their metrics and log lines.

A login is everything between the accept of a connection and its principal: a TLS handshake, a SASL login, or a
handshake and then a SASL login. A Prepare function (see `kafkapy.network.transports`) begins the login of a connection
with `processor.logins.begin(conn)`. The code that authenticates the client then calls `conn.login.succeed` or
`conn.login.fail`. Connections of a plain listener have no login.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy.network.metrics import METRICS
from kafkapy.runtime.counters import LabelledCounters
from kafkapy.runtime.line_limit import LineLimit

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.processor import Processor
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.counters import Registry

log = logging.getLogger(__name__)

TLS = "TLS"  # the mechanism of a login that is only a TLS handshake
# The stages of a login, for log lines.
HANDSHAKE = "the TLS handshake"
LOGIN = "the login"

_SUCCEEDED = METRICS["network_authentications"]
_FAILED = METRICS["network_authentication_failures"]
_SILENT = METRICS["network_connections_without_data"]


class LoginCounts:
    """Counts the logins of all listeners, and logs failed logins, with few lines a second. Any thread may use it."""

    def __init__(self, counters: Registry, clock: Clock) -> None:
        self._counts = LabelledCounters(counters, [_SUCCEEDED, _FAILED, _SILENT])
        self._lines = LineLimit(clock)

    def succeeded(self, listener: str, mechanism: str) -> None:
        self._counts.add(_SUCCEEDED, listener, mechanism)

    def failed(self, conn: Connection, reason: str, mechanism: str) -> None:
        """Count a failed login, and log it with the peer and the reason."""
        self._counts.add(_FAILED, conn.listener, mechanism)
        self.warn(conn, "authentication failed", f"{mechanism}: {reason}" if mechanism != TLS else reason)

    def silent(self, listener: str) -> None:
        """Count a connection that was closed by its peer before it sent anything, such as a health check."""
        self._counts.add(_SILENT, listener)

    def warn(self, conn: Connection, what: str, reason: str) -> None:
        """Log a warning about a peer, unless there were too many such warnings in this second."""
        left_out = self._lines.admit(conn.peer[0])
        if left_out is not None:
            log.warning("%s: %s%s", what, reason, left_out, extra=conn.who)


class Login:
    """The login of one connection, in `Connection.login` until it succeeds. Only the connection's processor uses it.

    `stage` is the current stage, HANDSHAKE or LOGIN. `has_sent` is whether the peer has sent anything. A transport sets
    `has_sent` with the first bytes; without a transport, the handler sets it with the first frame.
    """

    __slots__ = ("_logins", "conn", "deadline", "has_failed", "has_sent", "stage")

    def __init__(self, logins: Logins, conn: Connection, deadline: float) -> None:
        self._logins = logins
        self.conn = conn
        self.deadline = deadline
        self.stage = LOGIN
        self.has_sent = False
        self.has_failed = False

    def succeed(self, mechanism: str) -> None:
        """End the login: the client has authenticated by `mechanism`, a SASL mechanism or TLS."""
        self._logins.counts.succeeded(self.conn.listener, mechanism)
        self._logins.end(self)

    def fail(self, reason: str, mechanism: str = "") -> None:
        """Count and log, once, that the login has failed. The caller has the connection closed, at once or later.

        `mechanism` is a SASL mechanism or TLS; by default TLS until the handshake is over, then SASL.
        """
        if not self.has_failed:
            self.has_failed = True
            self._logins.counts.failed(self.conn, reason, mechanism or (TLS if self.stage == HANDSHAKE else "SASL"))


class Logins:
    """The logins in progress on one processor. All methods run on its thread.

    If there are more than `most` logins, the oldest fails, and its connection is closed. A real login takes
    milliseconds, so the oldest most likely belongs to a peer that only holds its connection open.
    """

    def __init__(self, processor: Processor, counts: LoginCounts, timeout_s: float, most: int) -> None:
        self._processor = processor
        self.counts = counts
        self._timeout_s = timeout_s
        self._most = most
        self._waiting: dict[int, Login] = {}  # by connection id, the oldest first
        self._timer_is_set = False

    def __len__(self) -> int:
        """Return the number of connections that have not authenticated yet."""
        return len(self._waiting)

    def begin(self, conn: Connection) -> None:
        """Begin the login of a new connection, which is closed if the login is not over in time."""
        if len(self._waiting) >= self._most:
            self._give_up(
                next(iter(self._waiting.values())),
                f"more than {self._most} connections are authenticating (kafkapy.max.connections.authenticating), and "
                "this is the oldest",
            )
        conn.login = login = Login(self, conn, self._processor.now + self._timeout_s)
        conn.patient = True  # a thousand clients may log in at the same time
        self._waiting[conn.id] = login
        if not self._timer_is_set:
            self._set_timer(login)

    def end(self, login: Login) -> None:
        del self._waiting[login.conn.id]
        login.conn.login = None
        login.conn.patient = False

    def closed(self, conn: Connection) -> None:
        """End the login of a connection that is being closed. Count and log it unless `fail` has done so before."""
        login = conn.login
        assert login is not None
        if not login.has_failed and not self._processor.draining:
            if login.has_sent or conn.carry is not None or conn.big is not None:
                login.fail(f"the connection was closed during {login.stage}")
            else:
                self.counts.silent(conn.listener)
        self.end(login)

    def _set_timer(self, login: Login) -> None:
        self._timer_is_set = True
        self._processor.call_at(login.deadline, self._give_up_late_ones)

    def _give_up_late_ones(self) -> None:
        self._timer_is_set = False
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.deadline > self._processor.now:
                self._set_timer(oldest)
                return
            self._give_up(
                oldest,
                f"{oldest.stage} was not over within {self._timeout_s:g} s (kafkapy.authentication.timeout.ms)",
            )

    def _give_up(self, login: Login, reason: str) -> None:
        login.fail(reason)
        self._processor.close(login.conn)
