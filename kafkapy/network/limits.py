"""How many connections are let in: in all, per listener and per address. As Kafka's ConnectionQuotas.

At `max.connections` (or a listener's own limit) new connections wait in the listen queue until one closes;
the inter-broker listener, when there are others, is let in all the same, and the idlest connection of another
listener is closed for it. A connection above its address's limit is accepted and closed.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping

from kafkapy.network.settings import UNLIMITED, Listener, NetworkSettings

log = logging.getLogger(__name__)


class ConnectionLimits:
    """Counts of open connections. Any thread may ask; `admit` is called by the acceptor only."""

    def __init__(self, settings: NetworkSettings, listeners: list[Listener]) -> None:
        self._lock = threading.Lock()
        self._protected = settings.inter_broker_listener if len(listeners) > 1 else None
        self._by_listener = {listener.name: 0 for listener in listeners}
        self._by_address: dict[str, int] = {}
        self._per_listener = dict(settings.max_connections_per_listener)
        self._overrides = _resolved(settings.max_connections_per_ip_overrides)
        self._per_ip = settings.max_connections_per_ip
        self._most = settings.max_connections
        self.total = 0
        self.on_release: Callable[[], None] | None = None

    def update(
        self,
        *,
        max_connections: int | None = None,
        max_connections_per_ip: int | None = None,
        overrides: Mapping[str, int] | None = None,
        per_listener: Mapping[str, int] | None = None,
    ) -> None:
        """Changes limits while running. Connections that are there stay, except by `max_connections` (see exceeded)."""
        resolved = None if overrides is None else _resolved(overrides)
        with self._lock:
            if max_connections is not None:
                self._most = max_connections
            if max_connections_per_ip is not None:
                self._per_ip = max_connections_per_ip
            if resolved is not None:
                self._overrides = resolved
            if per_listener is not None:
                self._per_listener = dict(per_listener)
        if self.on_release is not None:
            self.on_release()

    def has_room(self, listener: str) -> bool:
        """Whether a connection to `listener` may be taken out of the listen queue now."""
        if self._by_listener[listener] >= self._per_listener.get(listener, UNLIMITED):
            return False
        return listener == self._protected or self.total < self._most

    def admit(self, listener: str, address: str) -> bool:
        """Counts a new connection. False, and not counted, if the address has its share (`limit_of`) already."""
        with self._lock:
            count = self._by_address.get(address, 0)
            if count >= self.limit_of(address):
                return False
            self._by_address[address] = count + 1
            self._by_listener[listener] += 1
            self.total += 1
            return True

    def release(self, listener: str, address: str) -> None:
        """Counts a connection out, and lets the acceptor know when somebody may be waiting for that."""
        with self._lock:
            was_full = not self.has_room(listener) or self.total >= self._most
            left = self._by_address[address] - 1
            if left:
                self._by_address[address] = left
            else:
                del self._by_address[address]
            self._by_listener[listener] -= 1
            self.total -= 1
        if was_full and self.on_release is not None:
            self.on_release()

    def exceeded(self) -> bool:
        """Whether an idle connection has to go for one of the inter-broker listener or for a lowered limit."""
        return self.total > self._most

    def is_protected(self, listener: str) -> bool:
        return listener == self._protected

    def limit_of(self, address: str) -> int:
        return self._overrides.get(address, self._per_ip)

    def count(self, listener: str) -> int:
        return self._by_listener[listener]

    def count_of_address(self, address: str) -> int:
        return self._by_address.get(address, 0)


def _resolved(overrides: Mapping[str, int]) -> dict[str, int]:
    """Host names become their addresses, as Kafka does; one that does not resolve is an error that names it."""
    limits: dict[str, int] = {}
    for host, limit in overrides.items():
        try:
            found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ValueError(
                f"max.connections.per.ip.overrides: the host {host!r} does not resolve: {error}"
            ) from error
        for *_, address in found:
            limits[str(address[0])] = limit
    return limits
