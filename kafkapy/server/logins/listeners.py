"""The SASL listeners of a broker: prepares their connections for the login, and ends it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.server.config.listeners import SASL_PROTOCOLS
from kafkapy.server.config.sasl import given, no_inter_broker_user
from kafkapy.server.logins.first_login import FirstLogin, FirstLogins
from kafkapy.server.logins.mechanisms import SaslListener, sasl_listener
from kafkapy.server.logins.sessions import ExpiringSessions, Session
from kafkapy.server.logins.steps import Exchange
from kafkapy.server.metrics.logins import LoginMeters

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.replies import Handler
    from kafkapy.network.transports import Prepare, Transport
    from kafkapy.security.sasl.server import ServerMechanism
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.logins")

THREADS = 4  # for checks that may wait: an OAuth provider's keys, classes of the operator


class SaslLogins:
    """The logins on all SASL listeners. `dispatcher` handles the requests of clients that have authenticated.

    Raises ConfigError if a listener's mechanism cannot be used, or if this broker cannot log in to others.
    """

    def __init__(self, services: Services, dispatcher: Handler) -> None:
        missing = no_inter_broker_user(services.config)  # checked again, because these settings include the stored ones
        if missing is not None:
            raise missing
        self.services = services
        self.counts = LoginMeters(services.counters, services.clock)
        self._dispatcher = dispatcher
        self._first = FirstLogins()
        self._expiring = ExpiringSessions(dispatcher, self.counts.expired)
        self._pool = DiskPool(THREADS, "login")
        self._challenge_key = services.users.challenge_key()
        self._listeners = self._made(services.config)
        self._given = given(services.config)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if the SASL settings of `config` differ from those of the broker and cannot be used. This
        may read files."""
        # Not compared with `_given`, the last usable settings: if another program has stored settings that cannot be
        # used, changes of other settings must still be accepted.
        if given(config) != given(self.services.config):
            self._made(config)

    def configure(self, config: BrokerConfig) -> None:
        """Use changed settings for later logins. Settings that cannot be used change nothing, and are logged."""
        now = given(config)
        if now == self._given:
            return  # an OAuth provider's keys need not be read again
        try:
            self._listeners = self._made(config)
            self._given = now
        except ConfigError as error:
            log.error("changed SASL settings are not used: %s", error)

    def prepare(self, listener: str, transport: Prepare | None = None) -> Prepare:
        """Return the function that prepares the connections of a listener. `transport` makes their transport, such as
        TLS; None: plain text."""

        def prepare(conn: Connection) -> Transport | None:
            ready = self._listeners[listener]
            made = transport(conn) if transport is not None else None
            if conn.login is None:
                conn.processor.logins.begin(conn)
            conn.session = FirstLogin(self, ready)
            conn.handler = self._first
            conn.largest_frame = ready.settings.largest_frame
            return made

        return prepare

    def listener(self, name: str) -> SaslListener:
        """Return the listener with its present settings."""
        return self._listeners[name]

    def exchange(self, listener: SaslListener, mechanism: ServerMechanism) -> Exchange:
        """Return a new exchange of messages with the mechanism."""
        return Exchange(listener, mechanism, self._pool)

    def succeeded(self, conn: Connection, listener: SaslListener, mechanism: ServerMechanism, principal: str) -> int:
        """End a login: the client is `principal` from now on. Return the lifetime of its session in milliseconds; 0:
        without end."""
        conn.principal = principal
        conn.session = session = Session(self, listener, mechanism.name)
        lifetime_ms = session.extend(conn.processor.now, mechanism.expires_at_ms)
        conn.handler = self._dispatcher if session.expires_at is None else self._expiring
        conn.largest_frame = self.services.config.socket_request_max_bytes
        if conn.login is not None:
            conn.login.succeed(mechanism.name)
        return lifetime_ms

    def time_ms(self) -> int:
        return self.services.clock.time_ms()

    def stop(self) -> None:
        self._pool.stop()

    def _made(self, config: BrokerConfig) -> Mapping[str, SaslListener]:
        return {
            one.name: sasl_listener(config, one, self.services.users, self._challenge_key)
            for one in config.listeners
            if one.protocol in SASL_PROTOCOLS
        }
