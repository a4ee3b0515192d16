"""The first login of a connection on a SASL listener: what is allowed before the client has authenticated.

SaslHandshake version 0 is followed by bare tokens (a size and the mechanism's message), version 1 by SaslAuthenticate
requests. Before the handshake, ApiVersions may be requested once, and again if the response was an error. Everything
else ends the connection. The response to a login that fails is held back for connection.failed.authentication.delay.ms
by a timer, and meanwhile nothing is read (Kafka's SaslServerAuthenticator and Selector).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, ProtocolError
from kafkapy.network.replies import CLOSE, Last, Pending
from kafkapy.protocol.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkapy.security.sasl.errors import AuthenticationFailed
from kafkapy.server.api_table import TABLE
from kafkapy.server.call import Call, as_reply
from kafkapy.server.dispatcher import decode
from kafkapy.server.logins.sessions import LEAST_VERSION
from kafkapy.server.logins.steps import Exchange, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.network.connection import Connection
    from kafkapy.network.replies import Reply, Word
    from kafkapy.server.logins.listeners import SaslLogins
    from kafkapy.server.logins.mechanisms import SaslListener

_BEGIN, _HANDSHAKE, _TOKENS = range(3)
_LONGEST_SHOWN = 40  # characters of a mechanism that a client asks for
_UNKNOWN = "SASL"  # the mechanism of a login that has not named one, for metrics and log lines


class FirstLogin:
    """The state of one connection's login, in `Connection.session` until the client has authenticated.

    Only the connection's processor uses it.
    """

    def __init__(self, logins: SaslLogins, listener: SaslListener) -> None:
        self._logins = logins
        self._listener = listener
        self._state = _BEGIN
        self._exchange: Exchange | None = None
        self._bare = False  # the tokens come without requests

    @property
    def _name(self) -> str:
        return self._exchange.mechanism.name if self._exchange is not None else _UNKNOWN

    def take(self, conn: Connection, frame: memoryview) -> Reply:
        """Return the reply to one frame of the connection."""
        assert conn.login is not None
        conn.login.has_sent = True
        try:
            if self._state == _TOKENS:
                return self._token(conn, frame)
            return self._request(conn, frame)
        except ProtocolError as error:
            return self._failed(conn, str(error), None)

    def _request(self, conn: Connection, frame: memoryview) -> Reply:
        key = frame[0] << 8 | frame[1] if len(frame) >= 2 else -1
        if key not in (API_VERSIONS.key, SASL_HANDSHAKE.key):
            raise ProtocolError("the client sent something other than ApiVersions or SaslHandshake before its login")
        call = decode(conn, TABLE.find(key), frame, False)
        if key == SASL_HANDSHAKE.key:
            return self._handshake(call)
        if self._state != _BEGIN:
            raise ProtocolError("the client sent ApiVersions again before its login")
        response = call.served.handler(self._logins.services, call, call.request)
        if response.error_code == Errors.NONE:
            self._state = _HANDSHAKE
        return as_reply(call, response)

    def _handshake(self, call: Call) -> Reply:
        listener, name = self._listener, call.request.mechanism
        make = SASL_HANDSHAKE.Response
        mechanism = listener.mechanism(name)
        if mechanism is None:
            response = make(error_code=Errors.UNSUPPORTED_SASL_MECHANISM, mechanisms=listener.names)
            return self._failed(
                call.connection, f"the mechanism {name[:_LONGEST_SHOWN]!r} is not enabled", as_reply(call, response)
            )
        self._exchange = self._logins.exchange(listener, mechanism)
        self._state = _TOKENS
        self._bare = call.version == 0
        return as_reply(call, make(error_code=Errors.NONE, mechanisms=listener.names))

    def _token(self, conn: Connection, frame: memoryview) -> Reply:
        assert self._exchange is not None
        if self._bare:
            return self._step(conn, None, bytes(frame))
        key = frame[0] << 8 | frame[1] if len(frame) >= 2 else -1
        if key != SASL_AUTHENTICATE.key:
            raise ProtocolError("the client sent something other than SaslAuthenticate during its login")
        call = decode(conn, TABLE.find(key), frame, False)
        return self._step(conn, call, bytes(call.request.auth_bytes))

    def _step(self, conn: Connection, call: Call | None, token: bytes) -> Reply:
        """Return the reply to the client's next message, or a Pending if the mechanism may wait."""
        assert self._exchange is not None
        pending: Pending | None = None
        replies: list[Reply] = []

        def done(outcome: Outcome) -> None:
            reply = self._reply(conn, call, outcome, pending)
            if pending is None:
                replies.append(reply)
            elif reply is not pending:
                pending.complete(reply)

        self._exchange.take(conn, token, done)
        if replies:
            return replies[0]
        pending = Pending(conn)
        return pending

    def _reply(self, conn: Connection, call: Call | None, outcome: Outcome, pending: Pending | None) -> Reply:
        error = outcome.error
        if error is not None:
            refusal = None if outcome.may_retry else self._refusal(call, error)
            return self._failed(conn, error.reason, refusal, pending)
        lifetime_ms = 0
        if outcome.principal is not None:
            lifetime_ms = self._succeeded(conn, outcome.principal, call)
        if call is None:
            return _bare_token(outcome.answer)
        response = SASL_AUTHENTICATE.Response(
            error_code=Errors.NONE, error_message=None, auth_bytes=outcome.answer, session_lifetime_ms=lifetime_ms
        )
        return as_reply(call, response)

    def _refusal(self, call: Call | None, error: AuthenticationFailed) -> Reply | None:
        if call is None:  # a client that sends bare tokens learns nothing
            return None
        response = SASL_AUTHENTICATE.Response(
            error_code=Errors.SASL_AUTHENTICATION_FAILED,
            error_message=error.message,
            auth_bytes=b"",
            session_lifetime_ms=0,
        )
        return as_reply(call, response)

    def _succeeded(self, conn: Connection, principal: str, call: Call | None) -> int:
        assert self._exchange is not None
        knows_sessions = call is not None and call.version >= LEAST_VERSION
        lifetime_ms = self._logins.succeeded(conn, self._listener, self._exchange.mechanism, principal)
        return lifetime_ms if knows_sessions else 0

    def _failed(self, conn: Connection, reason: str, response: Any, pending: Pending | None = None) -> Reply:
        """Count and log the failed login. Return a Pending that is completed with the response after the delay."""
        assert conn.login is not None
        conn.login.fail(reason, self._name)
        reply: Reply = CLOSE if response is None else Last(response)
        delay_s = self._listener.settings.failure_delay_s
        if pending is None:
            if delay_s <= 0:
                return reply
            pending = Pending(conn)
        conn.processor.call_at(conn.processor.now + delay_s, pending.complete, reply)
        return pending


class FirstLogins:
    """Handles the frames of connections whose clients have not authenticated; the network's Handler for them."""

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply] | Word:
        """Return the reply to the first frame. The others are passed again, perhaps to another handler."""
        return [connection.session.take(connection, frames[0])]

    def end_turn(self, gathered: Sequence[tuple[Connection, Any]]) -> Sequence[tuple[Connection, Sequence[Reply]]]:
        """Return nothing: no requests are gathered before the login."""
        return []


def _bare_token(answer: bytes) -> Reply:
    return [len(answer).to_bytes(4, "big") + answer]
