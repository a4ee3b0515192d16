"""The session of a client that has logged in: when it expires, and its re-authentication (KIP-368)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.network.replies import CLOSE, Last
from kafkapy.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkapy.security.sasl.errors import AuthenticationFailed
from kafkapy.server.call import Call, Later, as_reply
from kafkapy.server.logins.steps import Exchange, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.network.connection import Connection
    from kafkapy.network.replies import Handler, Reply, Word
    from kafkapy.server.logins.listeners import SaslLogins
    from kafkapy.server.logins.mechanisms import SaslListener

log = logging.getLogger("kafkapy.server.logins")

LEAST_BETWEEN_S = 1.0  # between the beginnings of two re-authentications
LEAST_VERSION = 1  # of SaslAuthenticate: older clients do not know when to re-authenticate


class Session:
    """The session of an authenticated connection, in `Connection.session`. Only the connection's processor uses it.

    `expires_at` is a monotonic time, None if the session does not expire.
    """

    def __init__(self, logins: SaslLogins, listener: SaslListener, mechanism: str) -> None:
        self._logins = logins
        self._listener = listener
        self._mechanism = mechanism
        self._began_at = float("-inf")
        self._running = False  # a re-authentication has begun
        self._exchange: Exchange | None = None  # of this re-authentication; None if it asked for another mechanism
        self._other_mechanism = ""
        self.expires_at: float | None = None

    def extend(self, now: float, credential_expires_at_ms: int | None) -> int:
        """Set when the session expires, and return its lifetime in milliseconds; 0 if it does not expire. `now` is the
        monotonic time.

        As in Kafka, 0 is also returned for a credential that has expired already: then the next request closes the
        connection.
        """
        limits = []
        if credential_expires_at_ms is not None:
            limits.append(max(0, credential_expires_at_ms - self._logins.time_ms()))
        longest = self._listener.max_reauth_ms(self._mechanism)
        if longest:
            limits.append(longest)
        if not limits:
            self.expires_at = None
            return 0
        self.expires_at = now + min(limits) / 1000
        return min(limits)

    # Re-authentication: requests on the established connection

    def takes_late(self, key: int, now: float) -> bool:
        """Return True if a request with this API key is handled after the session's end: one that begins or continues a
        re-authentication."""
        return self._may_begin(now) if key == SASL_HANDSHAKE.key else self._running and key == SASL_AUTHENTICATE.key

    def _may_begin(self, now: float) -> bool:
        return now - self._began_at >= LEAST_BETWEEN_S

    def handshake(self, call: Call, mechanism: str) -> Any:
        """Handle SaslHandshake: begin a re-authentication with the mechanism of the login."""
        now = call.connection.processor.now
        make = SASL_HANDSHAKE.Response
        # As in Kafka: a session without an end cannot be extended, any other one at most once a second.
        if self.expires_at is None or call.version < 1 or not self._may_begin(now):
            return make(error_code=Errors.ILLEGAL_SASL_STATE, mechanisms=[])
        self._began_at = now
        # The present settings, not those of the login: a password that is invalid by now must not extend the session.
        listener = self._listener = self._logins.listener(call.connection.listener)
        made = listener.mechanism(mechanism)
        if made is None:
            return self._failed(
                call,
                make(error_code=Errors.UNSUPPORTED_SASL_MECHANISM, mechanisms=listener.names),
                f"the mechanism {mechanism[:40]!r} is not enabled",
            )
        # Another mechanism is refused with the next request, as in Kafka.
        self._other_mechanism = "" if mechanism == self._mechanism else mechanism
        self._exchange = None if self._other_mechanism else self._logins.exchange(listener, made)
        self._running = True
        return make(error_code=Errors.NONE, mechanisms=listener.names)

    def authenticate(self, call: Call, token: bytes) -> Any:
        """Handle SaslAuthenticate: the next message of a re-authentication."""
        if not self._running:
            return _refusal(
                Errors.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
            )
        if self._exchange is None:
            text = (
                f"SASL mechanism '{self._other_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._mechanism}'"
            )
            return self._failed(call, _refusal(Errors.SASL_AUTHENTICATION_FAILED, text), text)
        later: Later | None = None
        answers: list[Any] = []

        def done(outcome: Outcome) -> None:
            answer = self._answer(call, outcome, later)
            if later is None:
                answers.append(answer)
            elif answer is not later:
                later.complete(answer)

        self._exchange.take(call.connection, token, done)
        if answers:
            return answers[0]
        later = Later(call)
        return later

    def _answer(self, call: Call, outcome: Outcome, later: Later | None) -> Any:
        error = outcome.error
        if error is None and outcome.principal not in (None, call.connection.principal):
            error = AuthenticationFailed(
                f"Cannot change principals during re-authentication from {call.connection.principal}: "
                f"{outcome.principal}"
            )
        if error is not None:
            refusal = CLOSE if outcome.may_retry else _refusal(Errors.SASL_AUTHENTICATION_FAILED, error.message)
            return self._failed(call, refusal, error.reason, later)
        lifetime_ms = 0
        if outcome.principal is not None:
            assert self._exchange is not None
            lifetime_ms = self.extend(call.connection.processor.now, self._exchange.mechanism.expires_at_ms)
            self._exchange = None
            self._running = False
            self._logins.counts.reauthenticated(call.connection.listener)
        return SASL_AUTHENTICATE.Response(
            error_code=Errors.NONE, error_message=None, auth_bytes=outcome.answer, session_lifetime_ms=lifetime_ms
        )

    def _failed(self, call: Call, answer: Any, reason: str, later: Later | None = None) -> Later:
        """Count and log a failed re-authentication. Return the Later that is completed with `answer` after the delay;
        then the connection is closed."""
        conn = call.connection
        self._running = False
        self._exchange = None
        self._logins.counts.reauthentication_failed(conn, f"{self._mechanism}: {reason}")
        if later is None:
            later = Later(call)
        frame = as_reply(call, answer)
        last = Last(frame) if isinstance(frame, list) else frame
        conn.processor.call_at(
            conn.processor.now + self._listener.settings.failure_delay_s, later.pending.complete, last
        )
        return later


class ExpiringSessions:
    """Handles the frames of authenticated connections whose sessions expire: passes them to `handler`, the dispatcher.

    Any request after the session's end, other than those of a re-authentication, closes the connection.
    """

    def __init__(self, handler: Handler, on_expired: Callable[[Connection], object]) -> None:
        self._handler = handler
        self._on_expired = on_expired

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply] | Word:
        """Return the dispatcher's replies, or CLOSE if the session has expired."""
        expires_at = connection.session.expires_at
        if expires_at is None or connection.processor.now < expires_at:
            return self._handler.handle(connection, frames)
        frame = frames[0]
        key = frame[0] << 8 | frame[1] if len(frame) >= 2 else -1
        if not connection.session.takes_late(key, connection.processor.now):
            self._on_expired(connection)
            return [CLOSE]
        return self._handler.handle(connection, frames[:1])

    def end_turn(self, gathered: Sequence[tuple[Connection, Any]]) -> Sequence[tuple[Connection, Sequence[Reply]]]:
        """Return the dispatcher's replies."""
        return self._handler.end_turn(gathered)


def _refusal(code: int, text: str) -> Any:
    return SASL_AUTHENTICATE.Response(error_code=code, error_message=text, auth_bytes=b"", session_lifetime_ms=0)
