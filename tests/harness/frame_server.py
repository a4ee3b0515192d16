"""The server loop of stand-ins for brokers: sockets, frames with their size in front, and threads."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable


class FrameServer:
    """Accepts connections on 127.0.0.1 until `close`, and serves each on a thread of its own.

    `respond` gets each request, a frame without its size. It returns the bytes to send, which may be none, or None to
    close the connection.
    """

    def __init__(self, respond: Callable[[bytes], bytes | None], port: int = 0) -> None:
        self._respond = respond
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.port = self.address[1]
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def drop_connections(self) -> None:
        """Close all connections, like a broker that dies."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # the connection has just ended
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all sockets, and wait for the threads. A response in progress is not sent."""
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        threads = list(self._connections.values())
        self.drop_connections()
        for thread in threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
                while len(head := stream.read(4)) == 4:
                    (size,) = struct.unpack(">i", head)
                    frame = stream.read(size)
                    if len(frame) < size or (response := self._respond(frame)) is None:
                        break
                    connection.sendall(response)
        finally:
            del self._connections[connection]
