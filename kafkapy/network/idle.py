"""Finds connections that have been idle too long (connections.max.idle.ms).

A heap has one entry for each connection, with the time at which the connection would expire. The connection's
`last_active` is checked only when that time has come. So a request costs no more than setting `last_active`. The heap
is checked at most once a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kafkapy.network.connection import Connection

_COARSE_S = 1.0
_SWEEP_FROM = 128


class IdleConnections:
    """The connections of one processor, in a heap ordered by the time at which each expires if it stays idle."""

    def __init__(self, longest_s: float) -> None:
        self._longest = longest_s if longest_s >= 0 else None
        self._heap: list[tuple[float, int, Connection]] = []
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        """Return the number of heap entries, including those of closed connections that were not removed yet."""
        return len(self._heap)

    def add(self, conn: Connection) -> None:
        if self._longest is None:
            return
        if len(self._heap) >= self._sweep_at:
            # An entry stays in the heap until it would have expired, ten minutes by default. Without this sweep,
            # clients that connect and disconnect a thousand times a second would fill the memory.
            self._heap = [entry for entry in self._heap if not entry[2].closed]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._heap))
        heapq.heappush(self._heap, (conn.last_active + self._longest, conn.id, conn))

    def due_in(self, now: float) -> float:
        """Return the seconds, at least 1, until the next call of `expired`; infinity if there are no connections."""
        while self._heap and self._heap[0][2].closed:
            heapq.heappop(self._heap)
        return max(_COARSE_S, self._heap[0][0] - now) if self._heap else float("inf")

    def expired(self, now: float) -> Iterator[Connection]:
        """Yield the connections that have been idle for longer than allowed at the monotonic time `now`.

        A connection with a request in progress, or one that waits for memory, is not idle, unless the peer has closed
        its side. A connection that `may_be_idle` is never returned.
        """
        while self._heap and self._heap[0][0] <= now:
            _, _, conn = heapq.heappop(self._heap)
            if conn.closed:
                continue
            assert self._longest is not None
            if conn.may_be_idle or ((conn.pending is not None or conn.parked or conn.starved) and not conn.gone):
                conn.last_active = now
            due = conn.last_active + self._longest
            if due <= now:
                yield conn
            else:
                heapq.heappush(self._heap, (due, conn.id, conn))
