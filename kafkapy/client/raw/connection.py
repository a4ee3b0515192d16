"""A connection that sends encoded requests, and reads or discards the responses."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from kafkapy.client.connection import Connection
from kafkapy.protocol.headers import read_response_header, request_frame

TIMEOUT = 60.0  # after so many seconds without a byte, the broker counts as broken
_BUFFER = 1 << 20


class RawConnection:
    """A blocking connection; `socket` is connected, and logged in if that is needed.

    `lender`: the connection that has lent the socket, and logs in again before the session ends; None without a login.
    """

    def __init__(self, connected: socket.socket, client: str, lender: Connection | None = None) -> None:
        self.socket = connected
        self.client = client
        self._lender = lender
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A time-out of a Python socket costs one poll per call; the kernel's time-outs cost nothing.
        connected.settimeout(None)
        limit = struct.pack("ll", int(TIMEOUT), 0)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._buffer = memoryview(bytearray(_BUFFER))

    def close(self) -> None:
        self.socket.close()

    @property
    def session_ends(self) -> bool:
        """Whether it is time to log in again."""
        return self._lender is not None and time.monotonic() >= self._lender.log_in_at

    def log_in_again(self) -> None:
        """Log in again. No response may be outstanding."""
        assert self._lender is not None
        before = self.socket.gettimeout()
        self._lender.log_in_again()
        self.socket.settimeout(before)

    def ask(self, api: Any, version: int, message: Any) -> Any:
        """Send one request and return its decoded response."""
        self.socket.sendall(request_frame(api, version, 1, self.client, message))
        return self.decode(api, version, self.read_frame())

    def discard(self, length: int) -> None:
        """Receive `length` bytes and discard them."""
        while length > 0:
            length -= self._receive(self._buffer[:length])

    def read_frame(self) -> bytes:
        """Return the next response without its size field."""
        size = bytearray(4)
        self._read_into(memoryview(size))
        frame = bytearray(int.from_bytes(size, "big"))
        self._read_into(memoryview(frame))
        return bytes(frame)

    def decode(self, api: Any, version: int, frame: bytes) -> Any:
        """Return the decoded response of a frame."""
        _, body = read_response_header(frame, api, version)
        return api.decode_response(frame, version, body)

    def _read_into(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += self._receive(view[done:])

    def _receive(self, view: memoryview) -> int:
        try:
            count = self.socket.recv_into(view)
        except (BlockingIOError, TimeoutError):  # the time-out of the kernel, or of the socket if it has one
            raise TimeoutError(f"the broker has not answered for {TIMEOUT:.0f} s") from None
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        return count
