"""A part of a reply that is made while it is sent: its length is known in advance, its bytes are made piece by piece.

This is for data that is too large for memory and is not a region of a file, such as converted records. A piece is made
on a pool thread, sent, and dropped before the next piece is made. So a slow reader keeps one piece in memory, and a
closed connection keeps none. If slow readers keep more than MOST_HELD bytes together, their pieces are dropped, and
each piece is made again when its socket has room.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools

MOST_HELD = 64 << 20  # bytes of all pieces above which those that wait for room in their sockets are dropped

_NOTHING = memoryview(b"")


class _Held:
    """The total size of the pieces in memory, for all connections.

    A piece that is a view counts as much as the whole object behind the view.
    """

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.RLock()  # reentrant: the garbage collector may run Pieces.__del__ in `add`

    def add(self, size: int) -> None:
        with self._lock:
            self.total += size


held = _Held()


class Pieces:
    """A part of a reply with `length` bytes, which are made piece by piece, by calls of `make(offset)`.

    `make(offset)` returns any number of bytes that begin at `offset` in the part. The offset is the end of the previous
    piece, or lies inside the previous piece if that was dropped before it was sent. `ready` may be the first piece.
    `make` runs on the disk pool, or on the threads of the disk of the file `source`, one call at a time. Bytes beyond
    `length` are cut off. If `make` raises, or returns no bytes before `length` is reached, the connection is closed,
    because the frame cannot be completed.
    """

    __slots__ = ("_begin", "_piece", "_size", "length", "make", "source")

    def __init__(
        self,
        length: int,
        make: Callable[[int], bytes | memoryview],
        ready: bytes = b"",
        source: FileHandle | None = None,
    ) -> None:
        self.length = length
        self.make = make
        self.source = source
        self._begin = 0  # offset in the part at which the piece begins
        self._piece = _NOTHING
        self._size = 0  # bytes of the object that the piece is a view of
        self.put(ready)

    def __len__(self) -> int:
        return self.length

    def __del__(self) -> None:
        held.add(-self._size)

    def after(self, offset: int) -> memoryview:
        """Return the current piece from `offset`, counted in the part, on; empty if the next piece has to be made."""
        if offset >= self._begin + len(self._piece):
            self._begin = offset
            self.put(b"")
        return self._piece[offset - self._begin :]

    def put(self, piece: bytes | memoryview) -> None:
        """Replace the current piece by `piece`. Bytes of `piece` beyond the part's `length` are cut off."""
        view = memoryview(piece)
        size = len(view.obj) if view else 0  # type: ignore[arg-type]
        held.add(size - self._size)
        self._size = size
        self._piece = view[: self.length - self._begin]

    def wait(self, offset: int) -> None:
        """Drop the current piece if the pieces of all connections in memory together are larger than MOST_HELD.

        Called when the socket is full. `offset` is the first byte of the part that was not sent; a dropped piece is
        made again from there.
        """
        if held.total > MOST_HELD:
            self._begin = offset
            self.put(b"")


class PieceMaker:
    """Makes the pieces of replies on pool threads, for one processor."""

    def __init__(self, pool: DiskPool, read_pools: ReadPools) -> None:
        self._pool = pool
        self._read_pools = read_pools

    def make(self, part: Pieces, offset: int, done: Callable[[bytes | memoryview, BaseException | None], None]) -> None:
        """Call `part.make(offset)` on a pool thread, to make the piece of the reply part that begins at `offset`.

        Then `done(piece, None)` is called on a pool thread, or `done(b"", error)` if `part.make` raised.
        """
        pool = self._pool if part.source is None else self._read_pools.of_file(part.source.fd)
        pool.submit(part.make, offset, done=lambda piece, error: done(b"" if error is not None else piece, error))
