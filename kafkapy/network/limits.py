"""Limits of open connections for the broker, for each listener and for each client address, like Kafka's
ConnectionQuotas. Limits of new connections per second are in `connection_rates`.

At `max.connections`, or at a listener's own limit, new connections wait in the listen queue until another connection
closes. If there are several listeners, the inter-broker listener may exceed `max.connections`: then the connection of
another listener that was idle longest is closed. A connection from an address that has reached its limit is accepted
and closed at once.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping

from kafkapy.network.connection_rates import ConnectionRates
from kafkapy.network.settings import UNLIMITED, Listener, NetworkSettings
from kafkapy.runtime.config_def import ConfigError

log = logging.getLogger(__name__)


class ConnectionLimits:
    """The counts and limits of open connections. Any thread may use it; only the acceptor's thread calls `admit`.

    The constructor raises ConfigError if a host in `max_connections_per_ip_overrides` does not resolve.
    """

    def __init__(self, settings: NetworkSettings, listeners: list[Listener]) -> None:
        self._lock = threading.Lock()
        self._protected = settings.inter_broker_listener if len(listeners) > 1 else None
        self._by_listener = {listener.name: 0 for listener in listeners}
        self.rates = ConnectionRates(settings, self._by_listener, self._protected)
        self._by_address: dict[str, int] = {}
        self._per_listener = dict(settings.max_connections_per_listener)
        self._overrides, problems = _resolved(settings.max_connections_per_ip_overrides)
        if problems:
            raise next(iter(problems.values()))
        self._unresolved: Mapping[str, int] = {}  # overrides for hosts that did not resolve
        self._is_resolving = False  # True while the unresolved hosts are looked up again
        self._per_ip = settings.max_connections_per_ip
        self._most = settings.max_connections
        self.total = 0
        # Whether there are more connections than `max.connections`, so that an idle one has to be closed: after a new
        # connection to the inter-broker listener, or when the limit was lowered.
        self.exceeded = False
        self.on_release: Callable[[], None] | None = None
        self.on_exceeded: Callable[[], None] | None = None

    def update(
        self,
        *,
        max_connections: int | None = None,
        max_connections_per_ip: int | None = None,
        overrides: Mapping[str, int] | None = None,
        per_listener: Mapping[str, int] | None = None,
    ) -> None:
        """Change the given limits of a running broker; None leaves a limit as it is.

        Open connections above a new limit stay open, with one exception: if there are more connections than
        `max_connections`, the processors close those that were idle longest. A host in `overrides` whose name does not
        resolve is logged and left out until `resolve_missing` finds its address.
        """
        resolved, problems = _resolved(overrides or {})
        for host, problem in problems.items():
            if host not in self._unresolved:  # log once: all settings are passed again when any of them changes
                log.error("%s", problem)
        with self._lock:
            if max_connections is not None:
                self._most = max_connections
                self.exceeded = self.total > self._most
            if max_connections_per_ip is not None:
                self._per_ip = max_connections_per_ip
            if overrides is not None:
                self._overrides = resolved
                self._unresolved = {host: overrides[host] for host in problems}
            if per_listener is not None:
                self._per_listener = dict(per_listener)
        if self.on_release is not None:
            self.on_release()
        if self.exceeded and self.on_exceeded is not None:
            self.on_exceeded()

    def resolve_missing(self, later: Callable[[Callable[[], object]], object]) -> None:
        """Look up again the hosts in the overrides that did not resolve, unless an earlier call is still doing so. Call
        this once in a while, on one thread. `later(call)` calls `call()` on a thread that may block.
        """
        if self._unresolved and not self._is_resolving:
            self._is_resolving = True
            try:
                later(self._resolve_missing)
            except BaseException:
                self._is_resolving = False
                raise

    def _resolve_missing(self) -> None:
        missing = self._unresolved
        try:
            found, problems = _resolved(missing)
        finally:
            self._is_resolving = False
        with self._lock:
            if self._unresolved is missing:  # otherwise the overrides were changed meanwhile
                self._overrides = self._overrides | found
                self._unresolved = {host: missing[host] for host in problems}

    def has_room(self, listener: str) -> bool:
        """Return whether the limits of the broker and of `listener` allow another connection to be accepted now."""
        if self._by_listener[listener] >= self._per_listener.get(listener, UNLIMITED):
            return False
        return listener == self._protected or self.total < self._most

    def admit(self, listener: str, address: str) -> bool:
        """Count a new connection from `address` to `listener`, and return True.

        Return False, and count nothing, if `address` already has as many connections as `limit_of(address)` allows.
        """
        with self._lock:
            count = self._by_address.get(address, 0)
            if count >= self.limit_of(address):
                return False
            self._by_address[address] = count + 1
            self._by_listener[listener] += 1
            self.total += 1
            self.exceeded = self.total > self._most
            return True

    def release(self, listener: str, address: str) -> None:
        """Remove a closed connection from the counts. Wake the acceptor if the listener or broker was at its limit."""
        with self._lock:
            was_full = not self.has_room(listener) or self.total >= self._most
            left = self._by_address[address] - 1
            if left:
                self._by_address[address] = left
            else:
                del self._by_address[address]
            self._by_listener[listener] -= 1
            self.total -= 1
            self.exceeded = self.total > self._most
        if was_full and self.on_release is not None:
            self.on_release()

    def is_protected(self, listener: str) -> bool:
        return listener == self._protected

    def limit_of(self, address: str) -> int:
        return self._overrides.get(address, self._per_ip)

    def count(self, listener: str) -> int:
        return self._by_listener[listener]


def _resolved(overrides: Mapping[str, int]) -> tuple[dict[str, int], dict[str, ConfigError]]:
    """Return the limits in `overrides` by IP address instead of host name, as Kafka does, and the problem with each
    host that does not resolve. A host name with several addresses gives the limit to each of them."""
    limits: dict[str, int] = {}
    problems: dict[str, ConfigError] = {}
    for host, limit in overrides.items():
        try:
            found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: it cannot be a host name, such as "a..b"
            rule = f"the host does not resolve ({error}): check the name"
            problems[host] = ConfigError("max.connections.per.ip.overrides", f"{host}:{limit}", rule)
            continue
        for *_, address in found:
            limits[str(address[0])] = limit
    return limits, problems
