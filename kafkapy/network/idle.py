"""Which connections have been idle too long (connections.max.idle.ms).

A heap with one entry a connection, which is looked at only when it would be due: being active costs nothing
but the note of the time. Looked at most once a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kafkapy.network.connection import Connection

_COARSE_S = 1.0
_SWEEP_FROM = 128


class IdleConnections:
    """Of one processor."""

    def __init__(self, longest_s: float) -> None:
        self._longest = longest_s if longest_s >= 0 else None
        self._heap: list[tuple[float, int, Connection]] = []
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        """Entries, also of connections that were closed since the last sweep."""
        return len(self._heap)

    def add(self, conn: Connection) -> None:
        if self._longest is None:
            return
        if len(self._heap) >= self._sweep_at:
            # Clients that connect and go a thousand times a second would else fill the memory in the ten minutes.
            self._heap = [entry for entry in self._heap if not entry[2].closed]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._heap))
        heapq.heappush(self._heap, (conn.last_active + self._longest, conn.id, conn))

    def due_in(self, now: float) -> float:
        """Seconds until it is worth looking again, infinite without connections."""
        while self._heap and self._heap[0][2].closed:
            heapq.heappop(self._heap)
        return max(_COARSE_S, self._heap[0][0] - now) if self._heap else float("inf")

    def expired(self, now: float) -> Iterator[Connection]:
        """Those that are idle too long. One whose request is being worked on is not idle, unless its peer is gone."""
        while self._heap and self._heap[0][0] <= now:
            _, _, conn = heapq.heappop(self._heap)
            if conn.closed:
                continue
            assert self._longest is not None
            if (conn.pending is not None or conn.parked) and not conn.gone:
                conn.last_active = now
            due = conn.last_active + self._longest
            if due <= now:
                yield conn
            else:
                heapq.heappush(self._heap, (due, conn.id, conn))
