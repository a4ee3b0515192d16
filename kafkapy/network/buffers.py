"""Receive buffers: warm, because the first touch of fresh memory costs more than receiving into it.

Measured: 0.9 to 2.6 s of CPU per GiB for fresh pages, against 0.2 to 0.3 for the receiving itself. So large
frames go to pooled buffers, most recently used first. What a load needed at its height and no longer needs
is unmapped after a few seconds, and the process shrinks at once (these are mappings of their own).
"""

from __future__ import annotations

import mmap
import sys

SMALLEST = 64 << 10
FIRST_GRANT = 1 << 20


class Buffer:
    """An anonymous private mapping. Pages cost memory only once they are written."""

    __slots__ = ("_mapping", "capacity", "view")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._mapping = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.view = memoryview(self._mapping)

    def grow(self, capacity: int) -> None:
        """Makes room for more. The bytes are moved as pages, and copied only if somebody has a view of them."""
        self.view.release()
        try:
            self._mapping.resize(capacity)
        except BufferError:
            old, self._mapping = self._mapping, mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._mapping[: self.capacity] = old[:]
        finally:  # also where there was no memory: the buffer goes back to the pool, and others get it
            self.capacity = len(self._mapping)
            self.view = memoryview(self._mapping)


class BufferPool:
    """Free buffers of one processor (no locks: only its thread takes and gives)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free: list[Buffer] = []  # most recently given last
        self._spare = 0  # how many at the bottom have not been taken since the last trim
        self.free_bytes = 0
        self.lent = 0

    def __len__(self) -> int:
        return len(self._free)

    def take(self, size: int, there: int = 0, largest: int = sys.maxsize) -> Buffer:
        """A buffer for a frame of `size` bytes of which `there` have arrived.

        A free one that fits, else a new one that may be smaller than `size`: a peer gets memory for what it sent,
        not for what it claims. The one who receives grows it when it is full. Who keeps a buffer says how large the
        `largest` is that would not be wasted on it.
        """
        self.lent += 1
        best = -1
        for index in range(len(self._free) - 1, -1, -1):
            capacity = self._free[index].capacity
            if size <= capacity <= largest and (best < 0 or capacity < self._free[best].capacity):
                best = index
        if best >= 0:
            buffer = self._free.pop(best)
            self.free_bytes -= buffer.capacity
            self._spare = min(self._spare, best)
            return buffer
        return Buffer(min(rounded(size), max(FIRST_GRANT, rounded(2 * there))))

    def give(self, buffer: Buffer) -> None:
        """Takes a buffer back; unmaps it if enough are free."""
        self.lent -= 1
        if self.free_bytes + buffer.capacity <= self._limit:
            self._free.append(buffer)
            self.free_bytes += buffer.capacity

    def drop(self) -> None:
        """Counts a lent buffer as gone: somebody may still hold views of it, and its memory goes with the last."""
        self.lent -= 1

    def trim(self) -> None:
        """Unmaps the buffers that were not needed since the last call; to be called every few seconds."""
        for buffer in self._free[: self._spare]:
            self.free_bytes -= buffer.capacity
        del self._free[: self._spare]
        self._spare = len(self._free)


def rounded(size: int) -> int:
    """The next power of two, at least SMALLEST."""
    return max(SMALLEST, 1 << (size - 1).bit_length()) if size > 1 else SMALLEST
