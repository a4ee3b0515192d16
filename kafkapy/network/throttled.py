"""Accepted connections that are not served but closed after a while, because their address connects too often."""

from __future__ import annotations

import heapq
import itertools
import socket

# Each connection has a file descriptor. If there are more, the connection with the earliest time is closed at once.
MOST = 1000


class ThrottledConnections:
    """The sockets of connections that wait to be closed. Only the acceptor's thread uses it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._heap: list[tuple[int, int, socket.socket]] = []  # by the time at which they are closed
        self._numbers = itertools.count()  # the order of sockets with the same time

    def add(self, sock: socket.socket, until_ms: int) -> None:
        """Keep the socket open until `until_ms`, in the time of `close_due`."""
        heapq.heappush(self._heap, (until_ms, next(self._numbers), sock))
        if len(self._heap) > self._most:
            heapq.heappop(self._heap)[2].close()

    def close_due(self, now_ms: int) -> int | None:
        """Close the sockets whose time has come. Return the time of the next socket, None if no socket is left."""
        while self._heap and self._heap[0][0] <= now_ms:
            heapq.heappop(self._heap)[2].close()
        return self._heap[0][0] if self._heap else None

    def close_all(self) -> None:
        """Close all sockets, for example to get their descriptors back."""
        for _, _, sock in self._heap:
            sock.close()
        self._heap.clear()
