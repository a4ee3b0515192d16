"""The texts of client addresses to which the hosts in ACLs are compared: those of Java's InetAddress.getHostAddress."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4096)
def host_text(address: str) -> str:
    """Return the text that Java has for an address of a socket.

    IPv6 addresses are eight groups without `::` ("0:0:0:0:0:0:0:1"); an IPv4 address inside IPv6 (`::ffff:`) is that
    IPv4 address. Text that is not an address, such as the path of a Unix socket, is returned as it is.
    """
    text, _, scope = address.partition("%")
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return text
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return f"{groups}%{scope}" if scope else groups
