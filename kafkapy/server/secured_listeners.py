"""Secures the broker's listeners, and its connections to other brokers, by TLS or a login.

Each listener with TLS has its own SSLContext, from the settings `listener.name.NAME.ssl.*`, and for those that are not
set, `ssl.*`. The listener for other brokers also has a context for this broker's connections to them.
Source: kafka.network.SocketServer, ChannelBuilders, SslChannelBuilder.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kafkapy.network.connection import ANONYMOUS
from kafkapy.network.kernel_tls import KernelTls, suites_of_this_kernel
from kafkapy.network.tls import TlsDialer, TlsListener
from kafkapy.network.tls_connections import TlsConnections
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.logs import fields
from kafkapy.security.tls.certificates import has_expired, peer_name
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.mapping import SETTING as MAPPING_RULES
from kafkapy.security.tls.mapping import NoMatchingRule, PrincipalMapper
from kafkapy.security.tls.reloading import ReloadableContext
from kafkapy.security.tls.stores import KEY_STORE
from kafkapy.server.config.keys import shown
from kafkapy.server.config.listeners import SASL_PROTOCOLS
from kafkapy.server.config.security import CLIENT_AUTH, tls_settings
from kafkapy.server.metrics.tls import METRICS

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.transports import Prepare, Transport
    from kafkapy.runtime.counters import Registry
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.config.listeners import Listener

log = logging.getLogger("kafkapy.server.secured_listeners")

# Handshakes only need CPU time. With more threads than half of the CPUs, the network threads would wait for a CPU.
HANDSHAKE_THREADS = max(1, (os.cpu_count() or 1) // 2)


class CertificateExpired(Exception):
    """Raised for a client that resumes a session which it began before its certificate expired.

    OpenSSL verifies certificates in full handshakes only, and with TLS 1.3 a session can be resumed without end.
    """


class _Tls:
    """The TLS of one listener."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        """Load the stores. Raises StoreError if they cannot be used."""
        self.listener = listener
        settings = tls_settings(config, listener)
        self._asks_for_certificates = settings[CLIENT_AUTH] != "none"
        self.stores = ReloadableContext(settings, between_brokers=listener.name == config.inter_broker_listener)
        self.mapper = PrincipalMapper(settings[MAPPING_RULES])

    def principal_of(self, certificate: bytes | None) -> str:
        """Return the principal of a client with this certificate; "" on a listener with SASL, whose login tells it.

        Raises CertificateExpired, or NoMatchingRule if no mapping rule matches.
        """
        if certificate is not None and has_expired(certificate):
            raise CertificateExpired("its certificate is not accepted: certificate has expired")
        if self.listener.protocol in SASL_PROTOCOLS:
            return ""
        return ANONYMOUS if certificate is None else f"User:{self.mapper.name_of(peer_name(certificate))}"

    def own_principal(self) -> str | None:
        """Return the principal of this broker at a listener with these settings: that of its certificate if the
        listener asks clients for certificates, otherwise ANONYMOUS. None if no mapping rule matches."""
        own = self.stores.certificate
        if own is None or not self._asks_for_certificates:
            return ANONYMOUS
        try:
            return f"User:{self.mapper.name_of(own.subject)}"
        except NoMatchingRule:
            return None


class SecuredListeners:
    """The TLS contexts of the listeners, and the pool for handshakes. `stop` ends the pool's threads."""

    def __init__(self, config: BrokerConfig, counters: Registry) -> None:
        """Load all key and trust stores. Raises ConfigError, which names the setting, for one that cannot be used."""
        self._pool = DiskPool(HANDSHAKE_THREADS, "handshake")
        self._protected = [one.name for one in config.listeners if one.protocol != "PLAINTEXT"]
        self._between_brokers = config.inter_broker_listener
        self._reloading = threading.Lock()
        self._connections = TlsConnections(counters)
        self._kernel = kernel_tls() if config["kafkapy.ktls.enable"] else None
        self._tls: dict[str, _Tls] = {}
        for listener in config.listeners:
            if listener.has_tls:
                with _named(config, listener):
                    tls = self._tls[listener.name] = _Tls(config, listener)
                counters.register(METRICS["tls_certificate_days_left"], partial(_days_left, tls), listener.name)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if a key or trust store has changed, and the change is not allowed or cannot be used."""
        for tls in self._tls.values():
            with _named(config, tls.listener):
                tls.stores.check(tls_settings(config, tls.listener))

    def reload(self, config: BrokerConfig) -> None:
        """Use the stores of `config` for later connections, also if only a file has changed.

        Raises ConfigError if one of them cannot be used; then nothing changes.
        """
        with self._reloading:
            self.check(config)
            for tls in self._tls.values():
                with _named(config, tls.listener):
                    if tls.stores.reload(tls_settings(config, tls.listener)):
                        log.info("new connections use the new key and trust stores",
                                 extra=fields(listener=tls.listener.name))  # fmt: skip

    def own_principal(self) -> str | None:
        """Return the principal of this broker at other brokers, on an inter-broker listener with TLS and without SASL.
        None if it is unknown."""
        tls = self._tls.get(self._between_brokers)
        return None if tls is None else tls.own_principal()

    def prepare(self) -> dict[str, Prepare]:
        """Return the functions that prepare new connections, by the names of the listeners that are not plain."""
        return {name: self._prepare(name) for name in self._protected}

    def _prepare(self, name: str) -> Prepare:
        tls = self._tls.get(name)
        handshakes: TlsListener | None = None
        if tls is not None:
            handshakes = TlsListener(
                lambda: tls.stores.context, self._pool, tls.principal_of, self._connections, self._kernel
            )

        def prepare(conn: Connection) -> Transport | None:
            conn.processor.logins.begin(conn)
            return handshakes.prepare(conn) if handshakes is not None else None

        return prepare

    def prepare_dial(self, host: str) -> Prepare | None:
        """Return the function that prepares a connection to another broker at `host`. None: plain text."""
        tls = self._tls.get(self._between_brokers)
        if tls is None:
            return None

        def context() -> ssl.SSLContext:
            assert tls.stores.client is not None
            return tls.stores.client

        dialer = TlsDialer(context, self._pool)
        return lambda conn: dialer.prepare(conn, host)

    def stop(self) -> None:
        """Stop the pool for handshakes. Call this after the network has stopped."""
        self._pool.stop()
        if self._kernel is not None:
            self._kernel.stop()


def kernel_tls(suites_of: Callable[[], frozenset[str]] = suites_of_this_kernel) -> KernelTls | None:
    """Return what connections need for kernel TLS, None if this kernel cannot do it."""
    suites = suites_of()
    if not suites:
        log.warning(
            "kafkapy.ktls.enable is true, but this kernel cannot encrypt TLS connections, so OpenSSL does: it needs "
            "CONFIG_TLS, and the module `tls` has to be loaded (modprobe tls)"
        )
        return None
    log.info("the kernel encrypts responses on TLS 1.3 connections", extra=fields(suites=",".join(sorted(suites))))
    return KernelTls(suites)


def _days_left(tls: _Tls) -> float:
    days = tls.stores.days_left()
    return float("nan") if days is None else days


@contextmanager
def _named(config: BrokerConfig, listener: Listener) -> Iterator[None]:
    """Context manager that raises ConfigError, with the name that the setting has in the file, for a StoreError, and if
    the process has too few descriptors or too little memory to load a store."""
    try:
        yield
    except StoreError as error:
        name = config.name_in_use(listener.name, error.setting)
        value = config.given(name)
        shown_value = shown(name, value) if value is not None else ""
        raise ConfigError(name, shown_value, f"{error.reason} (listener {listener.name})") from None
    except OSError as error:  # no descriptor or no memory is left for the file through which OpenSSL gets a key
        name = config.name_in_use(listener.name, KEY_STORE)
        reason = f"cannot be loaded now: {error.strerror or error} (listener {listener.name})"
        raise ConfigError(name, config.given(name) or "", reason) from None
