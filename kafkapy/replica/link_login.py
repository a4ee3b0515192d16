"""The SASL login of a connection to another broker, and the next logins before the session ends (KIP-368).

A login is a chain of steps: each response starts the next step, and no thread waits. The mechanism's steps run on a
pool, because SCRAM computes for milliseconds and an OAuth provider may be asked for a token.
Source: SaslClientAuthenticator of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.security.sasl.client import ClientMechanism

log = logging.getLogger("kafkapy.replica.links")

# Sends a request of the login, and calls the function with its response on the connection's network thread.
Ask = Callable[[Api, Any, Callable[[Any], None]], None]


class LinkLogin:
    """One login on the connection `conn`. All methods run on its network thread.

    `done(None, lifetime)` is called when the login has succeeded; the session ends after `lifetime` seconds, 0 for
    never. `done(reason, 0)` is called when it has failed. Nothing is called if the connection is lost meanwhile.
    """

    def __init__(
        self,
        conn: Connection,
        mechanism: Callable[[], ClientMechanism],
        ask: Ask,
        run: Callable[..., object],
        done: Callable[[str | None, float], None],
    ) -> None:
        """`mechanism()` returns a new login of the mechanism; `run(fn)` calls a function on a pool."""
        self._conn = conn
        self._make = mechanism
        self._mechanism: ClientMechanism | None = None
        self._ask = ask
        self._run = run
        self._done = done
        self._lifetime_s = 0.0

    def begin(self) -> None:
        self._in_pool(self._first, self._choose)

    def _first(self) -> bytes:
        self._mechanism = self._make()
        return self._mechanism.initial()

    def _choose(self, token: bytes | None) -> None:
        assert self._mechanism is not None
        request = SASL_HANDSHAKE.Request(mechanism=self._mechanism.name)
        self._ask(SASL_HANDSHAKE, request, lambda response: self._chosen(response, token))

    def _chosen(self, response: Any, token: bytes | None) -> None:
        if response.error_code == Errors.NONE:
            self._send(token)
        else:
            has = ", ".join(response.mechanisms)
            self._done(message_of(response.error_code) + (f" It has {has}." if has else ""), 0.0)

    def _send(self, token: bytes | None) -> None:
        if token is None:
            self._done(None, self._lifetime_s)
        else:
            self._ask(SASL_AUTHENTICATE, SASL_AUTHENTICATE.Request(auth_bytes=token), self._answered)

    def _answered(self, response: Any) -> None:
        if response.error_code != Errors.NONE:
            self._done(response.error_message or message_of(response.error_code), 0.0)
            return
        assert self._mechanism is not None
        respond, challenge = self._mechanism.respond, bytes(response.auth_bytes)
        self._lifetime_s = response.session_lifetime_ms / 1000
        self._in_pool(lambda: respond(challenge), self._send)

    def _in_pool(self, step: Callable[[], bytes | None], then: Callable[[bytes | None], None]) -> None:
        """Call `then(step())`: `step` on the pool, `then` on the network thread. An exception ends the login."""

        def work() -> None:
            try:
                token = step()
            except (KafkaError, ValueError, OSError) as error:  # of the mechanism, or of its settings
                self._post(self._done, error.message if isinstance(error, KafkaError) else str(error), 0.0)
            except Exception as error:
                log.exception("a step of a login at another broker failed")
                self._post(self._done, f"{type(error).__name__}", 0.0)
            else:
                self._post(then, token)

        try:
            self._run(work)
        except (PoolStopped, NoThread) as error:
            self._done(str(error), 0.0)

    def _post(self, fn: Callable[..., None], *args: Any) -> None:
        self._conn.processor.post(self._call, fn, args)

    def _call(self, fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self._conn.closed:
            fn(*args)
