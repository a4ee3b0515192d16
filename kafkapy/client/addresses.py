"""Parses the addresses of brokers that users write."""

from __future__ import annotations

from collections.abc import Iterable


def parse_addresses(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """Return the (host, port) pairs of bootstrap servers, given as `"a:9092,[::1]:9093"` or as a list of addresses.

    Raise ValueError for an address that is not HOST:PORT, or when no address is given.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = []
    for text in filter(None, (text.strip() for text in texts)):
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"the address {text!r} is not HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no address of a broker is given; write HOST:PORT, as in 127.0.0.1:9092")
    return addresses
