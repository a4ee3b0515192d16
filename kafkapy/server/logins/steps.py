"""One step of a login: gives the client's message to the mechanism, on the network thread or on a pool."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.security.sasl.errors import AuthenticationFailed

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.security.sasl.server import ServerMechanism
    from kafkapy.server.logins.mechanisms import SaslListener

log = logging.getLogger("kafkapy.server.logins")


# Steps of all connections that may wait for a thread. As many as connections may authenticate at the same time
# (kafkapy.max.connections.authenticating), but a step also waits if its connection is closed meanwhile: without this
# limit, clients that send a large message and hang up would fill the memory while an OAuth provider does not answer.
MOST_WAITING = 2000


class Outcome(NamedTuple):
    """The result of a step: the answer to the client, the error of a login that has failed, or the principal of one
    that is complete.

    `may_retry`: the login has failed because the broker is busy. The connection is closed without a response, because
    clients try again then, but not after an authentication error.
    """

    answer: bytes
    error: AuthenticationFailed | None = None
    principal: str | None = None
    may_retry: bool = False


class Exchange:
    """The messages between a client and a mechanism, in a first login or a re-authentication.

    `take` calls `done(outcome)` on the connection's processor: before it returns, or later if the step may wait.
    """

    def __init__(self, listener: SaslListener, mechanism: ServerMechanism, pool: DiskPool) -> None:
        self.mechanism = mechanism
        self._listener = listener
        self._pool = pool

    def take(self, conn: Connection, token: bytes, done: Callable[[Outcome], object]) -> None:
        """Take the next message of the client. The exchange keeps no reference to the connection, which would be a
        reference cycle."""
        if not (self.mechanism.may_wait or self._listener.builder_may_wait):
            done(self._outcome(conn, token))
            return
        if self._pool.depth >= MOST_WAITING:
            done(_busy(f"{MOST_WAITING} messages of logins are waiting for a thread"))
            return
        try:
            self._pool.submit(self._on_pool, conn, token, done)
        except (PoolStopped, NoThread) as error:
            done(_busy(str(error)))

    def _on_pool(self, conn: Connection, token: bytes, done: Callable[[Outcome], object]) -> None:
        if conn.closed:
            return  # save the work: thousands of clients may have given up meanwhile
        outcome = self._outcome(conn, token)
        conn.processor.post(_unless_closed, conn, done, outcome)

    def _outcome(self, conn: Connection, token: bytes) -> Outcome:
        mechanism = self.mechanism
        try:
            answer = mechanism.respond(token)
            if not mechanism.complete:
                return Outcome(answer)
            assert mechanism.user is not None
            principal = self._listener.principal(mechanism.name, mechanism.user, conn.peer[0])
        except AuthenticationFailed as error:
            return Outcome(b"", error)
        except Exception as error:
            log.exception("a login with %s failed", mechanism.name, extra=conn.who)
            return Outcome(b"", AuthenticationFailed("Authentication failed", f"an error: {type(error).__name__}"))
        return Outcome(answer, principal=principal)


def _busy(reason: str) -> Outcome:
    return Outcome(b"", AuthenticationFailed("Authentication failed", reason), may_retry=True)


def _unless_closed(conn: Connection, done: Callable[[Outcome], object], outcome: Outcome) -> None:
    if not conn.closed:
        done(outcome)
