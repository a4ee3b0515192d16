"""The quotas `connection_creation_rate` of IP addresses: how many connections a second each may open (KIP-612)."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafkapy.metadata.quotas import CONNECTIONS, DEFAULT
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

log = logging.getLogger("kafkapy.server.quotas")


class AddressLimits:
    """Resolves the entities of quotas to IP addresses, and passes on all limits whenever one of them changes.

    `apply(default, limits)` gets the limits of single addresses, and the limit of all others (None: no limit).
    `later(call)` calls `call()`, which looks up host names, on a thread that may block. `later` may raise NoThread or
    PoolStopped.
    """

    def __init__(
        self,
        apply: Callable[[int | None, Mapping[str, int]], object],
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        self._apply = apply
        self._later = later
        self._lock = threading.Lock()
        self._default: int | None = None
        self._limits: dict[str, int] = {}  # by the name of the entity
        self._addresses: dict[str, list[str]] = {}  # of the names in `_limits`
        self._unresolved: dict[str, str] = {}  # why a name in `_limits` has no address
        self._is_resolving = False  # True while the unresolved names are looked up again

    def change(self, name: str, quotas: Mapping[str, float]) -> None:
        """Apply the quotas of an address, a host name or DEFAULT; {} removes them."""
        limit = int(quotas[CONNECTIONS]) if CONNECTIONS in quotas else None
        with self._lock:
            if name == DEFAULT:
                self._default = limit
            elif limit is None:
                self._limits.pop(name, None)
                self._addresses.pop(name, None)
                self._unresolved.pop(name, None)
            else:
                self._limits[name] = limit
                if name not in self._addresses:
                    try:
                        self._addresses[name] = [str(ipaddress.ip_address(name))]
                    except ValueError:
                        self._resolve_later(name)
            self._pass_on()

    def _resolve_later(self, name: str) -> None:
        """Look up a host name on another thread. If no thread can be started now, `resolve_missing` does it later.
        Called with the lock held."""
        try:
            self._later(partial(self._resolve, name))
        except (PoolStopped, NoThread) as error:
            log.warning("the quota of %s is not applied yet: %s", name, error)
            self._unresolved[name] = str(error)

    def resolve_missing(self) -> None:
        """Look up again the host names that had no address, unless an earlier call is still doing so: a lookup may take
        long. Call this once in a while, on one thread. Raises NoThread and PoolStopped.
        """
        with self._lock:
            names = list(self._unresolved)
        if names and not self._is_resolving:
            self._is_resolving = True
            try:
                self._later(partial(self._resolve_all, names))
            except BaseException:
                self._is_resolving = False
                raise

    def _resolve_all(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                self._resolve(name)
        finally:
            self._is_resolving = False

    def _resolve(self, name: str) -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if self._unresolved.get(name) != str(error):  # log each error once, not for each attempt
                log.error("the quota of %s is not applied as long as the name has no address: %s", name, error)
            with self._lock:
                if name in self._limits:
                    self._unresolved[name] = str(error)
            return
        with self._lock:
            self._unresolved.pop(name, None)
            if name in self._limits:
                self._addresses[name] = [str(address[0]) for *_, address in found]
                self._pass_on()

    def _pass_on(self) -> None:
        by_address = {
            address: limit for name, limit in self._limits.items() for address in self._addresses.get(name, ())
        }
        self._apply(self._default, by_address)
