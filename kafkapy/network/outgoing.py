"""Opens connections to other servers, such as other brokers.

An opened connection belongs to the processor that opened it and is served like a client's connection, in the other
direction: the frames that arrive are responses, and the replies that the handler returns are the next requests.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.runtime.logs import fields

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.processor import Processor
    from kafkapy.network.replies import Handler
    from kafkapy.network.transports import Prepare

log = logging.getLogger(__name__)

# Called once with the connection, or with None and the reason why there is none.
Opened = Callable[["Connection | None", "Exception | None"], object]


class Opening:
    """A connection to another server that is being opened. `Processor.open` describes the attributes."""

    __slots__ = ("address", "done", "flags", "handler", "prepare", "receive_buffer", "sock", "timeout_s")

    def __init__(
        self,
        address: tuple[str, int],
        handler: Handler,
        done: Opened,
        timeout_s: float,
        prepare: Prepare | None,
        receive_buffer: int,
    ) -> None:
        self.address = address
        self.handler = handler
        self.done = done
        self.timeout_s = timeout_s
        self.prepare = prepare
        self.receive_buffer = receive_buffer
        self.sock: socket.socket | None = None
        self.flags = 0  # epoll events so far

    def connect(self) -> socket.socket:
        """Begin to connect to `address`, and return the non-blocking socket.

        An epoll event of the socket follows when the result is known. Raises OSError if connecting fails at once or if
        the host is not an IP address, and UnicodeError for an invalid host.
        """
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        family, _, _, _, where = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM, flags=numeric)[0]
        self.sock = sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.receive_buffer > 0:  # before connecting, because the window scale is negotiated then
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.connect(where)
        except BlockingIOError:  # EINPROGRESS: an epoll event tells the result
            pass
        except OSError:
            sock.close()
            raise
        return sock

    def finish(self, conn: Connection | None, error: Exception | None) -> None:
        """Call `done(conn, error)`. If `done` raises, log the exception and close the connection, if there is one."""
        try:
            self.done(conn, error)
        except Exception:
            log.exception("the caller of an opened connection failed", extra=fields(peer=self.address))
            if conn is not None:
                conn.processor.close(conn)


class Openings:
    """The connections that a processor is opening. All methods run on the processor's thread."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._by_fd: dict[int, Opening] = {}

    def begin(self, one: Opening) -> None:
        """Begin to open the connection `one`, with its time-out. If that fails at once, `one.done` gets the error."""
        try:
            sock = one.connect()
        except (OSError, UnicodeError) as error:
            one.finish(None, error)
            return
        self._by_fd[sock.fileno()] = one
        try:
            self._processor.watch(sock)
        except OSError as error:
            self._give_up(one, error)
            return
        why = TimeoutError(f"no connection to {one.address} within {one.timeout_s:g} s")
        self._processor.call_at(self._processor.now + one.timeout_s, self._give_up, one, why)

    def event(self, fd: int, flags: int) -> None:
        """Note the epoll events `flags` of a socket that is being connected. Does nothing for other descriptors.

        The result is checked later, by a posted call, because `done` must not run in the middle of a poll.
        """
        one = self._by_fd.get(fd)
        if one is not None:
            one.flags |= flags
            self._processor.post(self._connected, one)

    def give_up_all(self, error: Exception) -> None:
        for one in list(self._by_fd.values()):
            self._give_up(one, error)

    def _connected(self, one: Opening) -> None:
        sock = self._taken(one)
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            sock.close()
            one.finish(None, OSError(code, os.strerror(code)))
        else:
            self._processor.add_opened(one, sock)

    def _give_up(self, one: Opening, error: Exception) -> None:
        sock = self._taken(one)
        if sock is not None:
            sock.close()
            one.finish(None, error)

    def _taken(self, one: Opening) -> socket.socket | None:
        """Remove `one` from the connections being opened. Return its socket, or None if it was removed before."""
        sock, one.sock = one.sock, None
        if sock is not None:
            del self._by_fd[sock.fileno()]
        return sock
