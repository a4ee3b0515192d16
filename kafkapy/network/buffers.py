"""A pool of receive buffers, because the page faults of fresh memory cost more than receiving into it.

Measured: 0.9 to 2.6 s of CPU per GiB for fresh pages, against 0.2 to 0.3 for the receiving itself. So large frames are
received into pooled buffers, the most recently used first. Buffers that were used only at a peak of load are unmapped
after a few seconds. Each buffer is a memory mapping of its own, so the memory of the process shrinks at once.
"""

from __future__ import annotations

import mmap
import sys

SMALLEST = 64 << 10
FIRST_GRANT = 1 << 20
# About how many bytes one call of `trim` unmaps. 1 MiB takes 70 µs, during which no thread runs Python code; 64 MiB at
# once delayed all connections by 4.5 ms.
TRIMMED = 8 << 20


class Buffer:
    """A receive buffer: an anonymous private memory mapping. Its pages cost memory only once they are written.

    `reserved` are the bytes of RequestMemory that are to be released with the buffer.
    """

    __slots__ = ("capacity", "mapping", "reserved", "view")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.reserved = 0
        self.mapping = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.view = memoryview(self.mapping)

    def grow(self, capacity: int) -> None:
        """Grow the buffer to `capacity` bytes and keep its content.

        The kernel moves the pages (mremap). The bytes are copied only if there are other views of the buffer. Raises
        OSError if there is no memory; the buffer is then unchanged.
        """
        self.view.release()
        try:
            self.mapping.resize(capacity)
        except BufferError:
            old, self.mapping = self.mapping, mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.mapping[: self.capacity] = old[:]
        finally:  # also after an error: the buffer returns to the pool, and has to be usable for other connections
            self.capacity = len(self.mapping)
            self.view = memoryview(self.mapping)


class BufferPool:
    """The free receive buffers of one processor. Without locks: only the processor's thread uses the pool."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free: list[Buffer] = []  # the buffer that was returned last is the last element
        self._spare = 0  # how many buffers at the start of `_free` were not used since the last trim
        self.free_bytes = 0
        self.lent = 0

    def __len__(self) -> int:
        return len(self._free)

    def take(self, size: int, there: int = 0, largest: int = sys.maxsize) -> Buffer:
        """Return a buffer for a frame of `size` bytes, of which `there` bytes have arrived.

        The result is the smallest free buffer of at least `size` and at most `largest` bytes. If there is none, the
        result is a new buffer that may be smaller than `size`: memory is taken for the bytes that the peer has sent,
        not for the size that the peer claims. The receiver grows the buffer when it is full. `largest` keeps callers
        that need a small buffer for a long time from getting a large one.
        """
        best = -1
        for index in range(len(self._free) - 1, -1, -1):
            capacity = self._free[index].capacity
            if size <= capacity <= largest and (best < 0 or capacity < self._free[best].capacity):
                best = index
        if best >= 0:
            buffer = self._free.pop(best)
            self.free_bytes -= buffer.capacity
            self._spare = min(self._spare, best)
        else:
            buffer = Buffer(min(rounded(size), max(FIRST_GRANT, rounded(2 * there))))
        self.lent += 1
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Return a lent buffer to the pool, or unmap it if the pool already has its limit of free bytes."""
        self.lent -= 1
        if self.free_bytes + buffer.capacity <= self._limit:
            self._free.append(buffer)
            self.free_bytes += buffer.capacity

    def drop(self) -> None:
        """Count a lent buffer as no longer lent, without returning it to the pool.

        For a buffer that another thread may still read: it is unmapped when no view of it is left.
        """
        self.lent -= 1

    def trim(self) -> None:
        """Unmap about TRIMMED bytes of free buffers that were not used since the last call. Called every few
        seconds."""
        before, count = self.free_bytes, 0
        while count < self._spare and before - self.free_bytes < TRIMMED:
            self.free_bytes -= self._free[count].capacity
            count += 1
        del self._free[:count]
        self._spare = len(self._free)


def rounded(size: int) -> int:
    """Return the smallest power of two that is at least `size` and at least SMALLEST."""
    return max(SMALLEST, 1 << (size - 1).bit_length()) if size > 1 else SMALLEST
