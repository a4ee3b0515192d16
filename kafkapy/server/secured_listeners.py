"""What is secured by TLS or a login: the broker's listeners, and its connections to other brokers.

Each listener with TLS has its own SSLContext, from the settings `listener.name.NAME.ssl.*`, and for those that are not
set, `ssl.*`. The listener for other brokers also has a context for this broker's connections to them.
Source: kafka.network.SocketServer, ChannelBuilders, SslChannelBuilder.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.network.connection import ANONYMOUS
from kafkapy.network.tls import TlsDialer, TlsListener
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.logs import fields
from kafkapy.security.tls.certificates import peer_name
from kafkapy.security.tls.context import client_context, server_context
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.mapping import SETTING as MAPPING_RULES
from kafkapy.security.tls.mapping import PrincipalMapper
from kafkapy.security.tls.stores import files_of
from kafkapy.server.config.keys import shown
from kafkapy.server.config.listeners import SASL_PROTOCOLS, TLS_PROTOCOLS
from kafkapy.server.config.security import tls_settings

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.transports import Prepare, Transport
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.config.listeners import Listener

log = logging.getLogger("kafkapy.server.secured_listeners")

# Handshakes are pure CPU work. More threads than half of the CPUs would take those of the network threads.
HANDSHAKE_THREADS = max(1, (os.cpu_count() or 1) // 2)


class _Loaded(NamedTuple):
    """What the settings and files of one listener gave. `source` tells whether they have changed since."""

    source: tuple[object, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext | None  # for connections to other brokers
    mapper: PrincipalMapper


class SecuredListeners:
    """The TLS contexts of the listeners, and the pool for handshakes. `stop` ends the pool's threads.

    Any thread may call all methods, but only one at a time `reload`.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Load all key and trust stores. Raises ConfigError, which names the setting, for one that cannot be used."""
        self._pool = DiskPool(HANDSHAKE_THREADS, "handshake")
        self._protocols = {one.name: one.protocol for one in config.listeners if one.protocol != "PLAINTEXT"}
        self._between_brokers = config.inter_broker_listener
        self._loaded: dict[str, _Loaded] = {}
        self._loaded = self._load_changed(config)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if the stores of a listener have changed and cannot be used."""
        self._load_changed(config)

    def reload(self, config: BrokerConfig) -> None:
        """Use the stores of `config` for later connections, also if only a file has changed.

        Raises ConfigError if one of them cannot be used; then nothing changes.
        """
        changed = self._load_changed(config)
        self._loaded.update(changed)
        for name in changed:
            log.info("later connections use the new key and trust stores", extra=fields(listener=name))

    def _load_changed(self, config: BrokerConfig) -> dict[str, _Loaded]:
        """Return what is loaded of the listeners whose settings or files have changed, by their names."""
        changed = {}
        for listener in config.listeners:
            if listener.has_tls:
                settings = tls_settings(config, listener)
                source = _source(settings)
                before = self._loaded.get(listener.name)
                if before is None or before.source != source:
                    try:
                        changed[listener.name] = _Loaded(
                            source,
                            server_context(settings),
                            client_context(settings) if listener.name == config.inter_broker_listener else None,
                            PrincipalMapper(settings[MAPPING_RULES]),
                        )
                    except StoreError as error:
                        raise _config_error(config, listener, error) from None
        return changed

    def prepare(self) -> dict[str, Prepare]:
        """Return the functions that prepare new connections, by the names of the listeners that are not plain."""
        return {name: self._prepare(name, protocol) for name, protocol in self._protocols.items()}

    def _prepare(self, name: str, protocol: str) -> Prepare:
        tls: TlsListener | None = None
        if protocol in TLS_PROTOCOLS:
            principal_of = None if protocol in SASL_PROTOCOLS else self._principal_of(name)
            tls = TlsListener(lambda: self._loaded[name].server, self._pool, principal_of)

        def prepare(conn: Connection) -> Transport | None:
            conn.processor.logins.begin(conn)
            return tls.prepare(conn) if tls is not None else None

        return prepare

    def _principal_of(self, name: str) -> Callable[[bytes | None], str]:
        def principal_of(certificate: bytes | None) -> str:
            if certificate is None:
                return ANONYMOUS
            return f"User:{self._loaded[name].mapper.name_of(peer_name(certificate))}"

        return principal_of

    def prepare_dial(self, host: str) -> Prepare | None:
        """Return the function that prepares a connection to another broker at `host`. None: plain text."""
        name = self._between_brokers
        if self._protocols.get(name) not in TLS_PROTOCOLS:
            return None

        def context() -> ssl.SSLContext:
            client = self._loaded[name].client
            assert client is not None
            return client

        dialer = TlsDialer(context, self._pool)
        return lambda conn: dialer.prepare(conn, host)

    def stop(self) -> None:
        """Stop the pool for handshakes. Call this after the network has stopped."""
        self._pool.stop()


def _source(settings: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the settings, and what tells whether a file of them has changed, for comparisons."""
    files: list[tuple[object, ...]] = []
    for path in files_of(settings):
        try:
            found = os.stat(path)
            files.append((path, found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            files.append((path,))  # the error that matters comes when it is read
    return repr(sorted(settings.items())), tuple(files)


def _config_error(config: BrokerConfig, listener: Listener, error: StoreError) -> ConfigError:
    """Return the error with the name that the setting has in the file."""
    name = config.name_in_use(listener.name, error.setting)
    value = config.given(name)
    return ConfigError(name, shown(name, value) if value is not None else "", error.reason)
