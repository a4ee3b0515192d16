"""Opening the listening sockets. The errors name the address and say what to do."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from kafkapy.network.settings import Listener, NetworkSettings


class ListenError(OSError):
    """Raised when the server cannot listen on a listener's address. The message names the address and the reason."""


def open_listener(listener: Listener, settings: NetworkSettings, others: Iterable[Listener] = ()) -> socket.socket:
    """Return a non-blocking socket that listens on the listener's host and port. Port 0 stands for any free port.

    The host `::` stands for all interfaces with IPv6 and IPv4, as in Java, or with IPv6 only if one of the `others`
    has the same port. Raises ListenError if the host does not resolve, or if the address or port cannot be used.
    """
    try:
        family, address = _address(listener)
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                both = listener.host == "" or (address[0] == "::" and not _shares_port(listener, others))
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
            if settings.socket_receive_buffer_bytes >= 0:
                # Set before listening, because TCP negotiates the window scale when a connection is opened.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
            sock.bind(address)
            sock.listen(settings.socket_listen_backlog_size)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise ListenError(error.errno, f"cannot listen on {listener}: {_reason(error, listener.setting)}") from error
    return sock


def _shares_port(listener: Listener, others: Iterable[Listener]) -> bool:
    return listener.port != 0 and any(other.port == listener.port for other in others)


def _address(listener: Listener) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if listener.host == "":
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", listener.port)
        return socket.AF_INET, ("0.0.0.0", listener.port)
    # As bytes, because for a str Python imports its codec of international names: 2 ms of every start.
    host = listener.host.encode() if listener.host.isascii() else listener.host
    found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, address  # type: ignore[return-value]


def _reason(error: OSError, setting: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"the host does not resolve ({error.strerror}); check the name in {setting}"
    if error.errno == errno.EADDRINUSE:
        return f"the port is in use; choose another one in {setting} or stop the process that has it"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no such address; use one of its own in {setting} or leave the host empty"
    if error.errno == errno.EACCES:
        return f"no permission; ports below 1024 need privileges, choose a higher one in {setting}"
    return error.strerror or str(error)
