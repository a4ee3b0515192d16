"""The rates of new connections, and their limits for the broker, each listener and each address, like those of Kafka's
ConnectionQuotas (KIP-402, KIP-612).

Above the rate of the broker or of its listener (`max.connection.creation.rate`), a new connection waits before it is
served. A connection from an address above its own rate (`connection_creation_rate`) is not served and counts for no
other limit; the caller closes it after a while, so that a client which connects again at once gains nothing.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from kafkapy.network.settings import UNLIMITED, NetworkSettings
from kafkapy.runtime.rates import Rate

# Addresses whose rates are remembered. The one that connected least recently is forgotten first.
MOST_ADDRESSES = 10_000


class ConnectionRates:
    """The rates of new connections. Any thread may call the methods; only the acceptor's thread records.

    Times are milliseconds of the monotonic clock. No delay is longer than one sample (`quota.window.size.seconds`).
    """

    def __init__(self, settings: NetworkSettings, listeners: Iterable[str], protected: str | None) -> None:
        """Begin with no recorded connections. `protected` is the inter-broker listener if there are other listeners:
        the broker's limit does not apply to it."""
        self._lock = threading.Lock()
        self._windows = settings.quota_windows
        self._protected = protected
        self._of_broker = self._rate()
        self._of_listener = {name: self._rate() for name in listeners}
        # By address, the one that connected least recently first: its rate, and when it connected last.
        self._of_address: OrderedDict[str, tuple[Rate, int]] = OrderedDict()
        self._limit = settings.max_connection_creation_rate
        self._per_listener = dict(settings.max_connection_creation_rate_per_listener)
        self._address_limit = UNLIMITED
        self._address_limits: dict[str, int] = {}

    def set_limits(self, limit: int, per_listener: Mapping[str, int]) -> None:
        """Set the limits, in connections per second, of the broker and of single listeners by name."""
        with self._lock:
            self._limit = limit
            self._per_listener = dict(per_listener)

    def set_address_limits(self, default: int | None, limits: Mapping[str, int]) -> None:
        """Set the limits of addresses, in connections per second: `limits` by IP address, `default` for all others.
        None means no limit."""
        with self._lock:
            self._address_limit = UNLIMITED if default is None else default
            self._address_limits = dict(limits)
            for address in list(self._of_address):
                if self.limit_of(address) >= UNLIMITED:
                    del self._of_address[address]

    def limit_of(self, address: str) -> int:
        """Return the connections per second that this address may open."""
        return self._address_limits.get(address, self._address_limit)

    def delay_ms(self, listener: str, now_ms: int) -> int:
        """Record a new connection, and return for how many milliseconds it has to wait."""
        with self._lock:
            delay = 0
            if listener != self._protected:
                delay = self._record(self._of_broker, self._limit, now_ms)
            limit = self._per_listener.get(listener, UNLIMITED)
            return max(delay, self._record(self._of_listener[listener], limit, now_ms))

    def address_delay_ms(self, listener: str, address: str, now_ms: int) -> int:
        """Record a connection, which `delay_ms` has recorded already, in the rate of its address.

        Return 0 if the address is within its limit. Otherwise remove the connection from all rates, and return after
        how many milliseconds the caller has to close it.
        """
        if not self._address_limits and self._address_limit >= UNLIMITED:
            return 0
        with self._lock:
            limit = self.limit_of(address)
            if limit >= UNLIMITED:
                return 0
            rate = self._address_rate(address, now_ms)
            delay = self._record(rate, limit, now_ms)
            if delay:
                rate.record(-1, now_ms)
                self._of_listener[listener].record(-1, now_ms)
                if listener != self._protected:
                    self._of_broker.record(-1, now_ms)
            return delay

    def of_broker(self, now_ms: int) -> float:
        """Return the new connections per second of all listeners except a protected one."""
        with self._lock:
            return self._of_broker.measure(now_ms)

    def of_listener(self, listener: str, now_ms: int) -> float:
        """Return the new connections per second of a listener."""
        with self._lock:
            return self._of_listener[listener].measure(now_ms)

    def of_addresses(self, now_ms: int, most: int) -> list[tuple[str, float]]:
        """Return the addresses with a limit that connect most often, at most `most` of them, and their connections per
        second."""
        with self._lock:
            rates = [(address, rate.measure(now_ms)) for address, (rate, _) in self._of_address.items()]
        return heapq.nlargest(most, (pair for pair in rates if pair[1]), lambda pair: pair[1])

    def _record(self, rate: Rate, limit: int, now_ms: int) -> int:
        rate.record(1, now_ms)
        return 0 if limit >= UNLIMITED else min(rate.throttle_ms(limit, now_ms), self._windows.ms)

    def _address_rate(self, address: str, now_ms: int) -> Rate:
        known = self._of_address
        rate, _ = known.pop(address) if address in known else (self._rate(), 0)
        # A rate with nothing in its windows is the same as a new one.
        expired_ms = now_ms - self._windows.number * self._windows.ms
        while known and (len(known) >= MOST_ADDRESSES or next(iter(known.values()))[1] <= expired_ms):
            known.popitem(last=False)
        known[address] = rate, now_ms
        return rate

    def _rate(self) -> Rate:
        return Rate(self._windows)
