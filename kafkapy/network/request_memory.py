"""The memory of large requests, of all connections together, which `queued.max.request.bytes` limits.

Source: Kafka's SimpleMemoryPool; the differences keep requests from waiting for each other for ever. A request that is
received in a buffer of its own reserves its whole size first, and gives the bytes back when the broker does not read
the buffer any more. So a connection that has begun to receive a request does not wait for memory again, and a waiting
connection holds no memory. Waiting connections are not read, and continue in the order in which they came.

The reservation that reaches the limit may exceed it, as in Kafka, so any single request fits. Three kinds of requests
have limits of their own:

- a Produce request, whose records may wait for a disk or another broker, reserves only below the limit;
- other requests may use as much memory again. Brokers send them, too: a Produce request may wait for the Fetch request
  of a follower, so that Fetch request must not wait for the memory of the Produce request;
- before a client has authenticated, its messages may use only half of the limit.

Small requests never wait. They are handled in the buffer that all connections of a network thread share, and counted
only if they keep that buffer.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import mmap

    from kafkapy.network.connection import Connection
    from kafkapy.network.processor import Processor
    from kafkapy.runtime.clock import Clock

# The kinds of requests. The first kind gets memory first.
OTHER: Final = 0
PRODUCE: Final = 1
LOGIN: Final = 2

NO_LIMIT: Final = (1 << 63) - 1  # the available memory without a limit, as Kafka shows it


class RequestMemory:
    """The bytes that large requests may still reserve. All processors share it, and any thread may use it.

    `has_waiting` is whether any connection waits for memory. When a first connection begins to wait, `on_first_wait` is
    called on its processor.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit = limit
        self.has_waiting = False
        self.on_first_wait: Callable[[], None] | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._available = limit
        self._floors = (-limit, 0, limit // 2)  # by kind: the available memory that is left to others
        # By kind: the waiting connections by id, in the order in which they came, and the bytes that each needs.
        self._waiting: tuple[dict[int, tuple[Connection, int]], ...] = ({}, {}, {})
        self._depleted_since = 0.0
        self._depleted_s = 0.0
        self._dropped: set[weakref.ref[mmap.mmap]] = set()

    def reserve(self, conn: Connection, size: int, kind: int) -> bool:
        """Reserve `size` bytes for a request of the connection and return True.

        If there is not enough memory, or another request of this kind waits, return False: the connection waits. Its
        processor calls `Serving.granted` when the bytes are reserved.
        """
        with self._lock:
            waiting = self._waiting[kind]
            if not waiting and self._available > self._floors[kind]:
                self._available -= size
                return True
            waiting[conn.id] = conn, size
            is_first, self.has_waiting = not self.has_waiting, True
            if is_first:
                self._depleted_since = self._clock.monotonic()
        if is_first and self.on_first_wait is not None:
            self.on_first_wait()
        return False

    def charge(self, size: int) -> None:
        """Reserve `size` bytes that a connection holds already, even if the limit is exceeded."""
        with self._lock:
            self._available -= size

    def release(self, size: int) -> None:
        """Give `size` reserved bytes back, and grant available bytes to the connections that wait."""
        with self._lock:
            self._available += size
            if self.has_waiting:
                self._grant()

    def release_when_dropped(self, size: int, mapping: mmap.mmap, processor: Processor) -> None:
        """Give `size` bytes back when there is no reference to `mapping` any more: other threads may still read it."""

        def gone(reference: weakref.ref[mmap.mmap]) -> None:
            # This may run on any thread, also on one that holds the lock.
            self._dropped.discard(reference)
            processor.post(self.release, size)

        self._dropped.add(weakref.ref(mapping, gone))

    def forget(self, conn: Connection) -> None:
        """Remove a connection that is being closed from the waiting connections."""
        with self._lock:
            for waiting in self._waiting:
                if waiting.pop(conn.id, None) is not None:
                    self._grant()

    def _grant(self) -> None:
        for waiting, floor in zip(self._waiting, self._floors, strict=True):
            while waiting and self._available > floor:
                conn, size = waiting.pop(next(iter(waiting)))
                self._available -= size
                conn.processor.post_granted(conn, size)
        if not any(self._waiting):
            self.has_waiting = False
            self._depleted_s += self._clock.monotonic() - self._depleted_since

    # For the metrics

    @property
    def available(self) -> int:
        """The bytes that may still be reserved. Negative if the limit is exceeded."""
        return self._available

    @property
    def used(self) -> int:
        """The reserved bytes."""
        return self.limit - self._available

    @property
    def waiting(self) -> int:
        """The number of connections that wait for memory."""
        return sum(map(len, self._waiting))

    @property
    def depleted_s(self) -> float:
        """The seconds, in all, during which connections have waited for memory."""
        with self._lock:
            return self._depleted_s + (self._clock.monotonic() - self._depleted_since if self.has_waiting else 0.0)
