"""Parses `listeners`, `advertised.listeners`, `listener.security.protocol.map` and per-address limits (EndPoint)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.config_def import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = frozenset({"SSL", "SASL_SSL"})
SASL_PROTOCOLS = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
ANY_ADDRESSES = frozenset({"0.0.0.0", "::"})


class Listener(NamedTuple):
    """One listener of the broker. `name` is in upper case; an empty `host` means all addresses; `port` 0 means any free
    port."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def has_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    def __str__(self) -> str:
        return f"{self.name}://{host_port(self.host, self.port)}"


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    """Return the security protocol of each listener name, from a comma-separated list of NAME:PROTOCOL. Raise
    ConfigError, which names the setting `key`."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in pair.rpartition(":"))
        if not colon or not name:
            raise ConfigError(key, text, f"must be a list of NAME:PROTOCOL ({pair} is not)")
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(key, text, f"{protocol} is not one of {', '.join(PROTOCOLS)}")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(
    key: str, text: str, protocols: Mapping[str, str], *, distinct_ports: bool = True
) -> tuple[Listener, ...]:
    """Return the listeners in a comma-separated list of NAME://HOST:PORT. Raise ConfigError, which names the setting
    `key`.

    The names must be different. With `distinct_ports` the ports must be different too, except port 0, and except an
    IPv4 and an IPv6 address that share a port.
    """
    listeners: list[Listener] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        listener = _parse_listener(key, text, part, protocols)
        for other in listeners:
            if other.name == listener.name:
                raise ConfigError(key, text, f"two listeners have the name {listener.name}")
            if distinct_ports and listener.port == other.port != 0 and not _two_families(listener.host, other.host):
                raise ConfigError(key, text, f"two listeners have the port {listener.port}")
        listeners.append(listener)
    return tuple(listeners)


def _parse_listener(key: str, text: str, part: str, protocols: Mapping[str, str]) -> Listener:
    name, separator, address = part.partition("://")
    host, colon, port_text = address.rpartition(":")
    if not separator or not name or not colon:
        raise ConfigError(key, text, f"must be a list of NAME://HOST:PORT ({part} is not)")
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65535:
        raise ConfigError(key, text, f"a port must be a number from 0 to 65535 ({port_text or 'nothing'} is not)")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(key, text, f"an IPv6 address must be in brackets ([{host}], not {host})")
    if any(char in "[]/ \t@" for char in host) or (bracketed and ":" not in host):
        raise ConfigError(key, text, f"{host} is not a host name or address")
    name = name.strip().upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(key, text, f"{name} has no security protocol; give it one in listener.security.protocol.map")
    return Listener(name, host, int(port_text), protocol)


def _two_families(host: str, other: str) -> bool:
    return bool(host and other) and (":" in host) != (":" in other) and _is_address(host) and _is_address(other)


def _is_address(host: str) -> bool:
    return ":" in host or all(part.isdigit() for part in host.split("."))


def parse_per_ip(key: str, text: str) -> dict[str, int]:
    """Return the connection limit of each host, from a comma-separated list of HOST:NUMBER. An IPv6 address may be in
    brackets. Raise ConfigError, which names the setting `key`."""
    limits = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, _, number = pair.rpartition(":")
        host = host.strip()
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not host or not (number.strip().isascii() and number.strip().isdigit()):
            raise ConfigError(key, text, f"must be a list of HOST:NUMBER ({pair} is not)")
        limits[host] = int(number)
    return limits
