"""A part of a reply that is made while it is sent: the length is promised, the bytes come piece by piece.

What is too large to be held, and is no part of a file, goes out like this: a piece is made on the disk pool, given to
the socket, forgotten, and only then the next one is made. A slow reader holds one piece, one that has gone none. Where
many slow readers hold much together, they hold none either: a piece is made once more when its socket has room.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkapy.record.file_region import FileHandle
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools

MOST_HELD = 64 << 20  # bytes of all pieces that sockets have no room for

_NOTHING = memoryview(b"")


class _Held:
    """Bytes of all pieces in memory. Counted by the objects they lie in: a rest keeps all of its piece."""

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.RLock()  # a collection of garbage may come to it anywhere

    def add(self, size: int) -> None:
        with self._lock:
            self.total += size


held = _Held()


class Pieces:
    """`length` bytes, which `make(offset)` gives piece by piece: what follows from that byte of them on.

    The offset is where the piece before ended, or lies inside of that one, which was let go of. `ready` may be the
    first piece. `make` runs on the disk pool, or on the threads of the disk that `source` is on; never twice at a time.
    What it gives beyond the length is cut off; an exception, or an empty piece before the length is reached, closes the
    connection, for the frame cannot be completed.
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
        self._size = 0  # of the object that the piece lies in
        self.put(ready)

    def __len__(self) -> int:
        return self.length

    def __del__(self) -> None:
        held.add(-self._size)

    def after(self, offset: int) -> memoryview:
        """What there is of the current piece from `offset` (of the part) on; nothing: the next has to be made."""
        if offset >= self._begin + len(self._piece):
            self._begin = offset
            self.put(b"")
        return self._piece[offset - self._begin :]

    def put(self, piece: bytes | memoryview) -> None:
        """The piece that follows the one that is sent."""
        view = memoryview(piece)
        size = len(view.obj) if view else 0  # type: ignore[arg-type]
        held.add(size - self._size)
        self._size = size
        self._piece = view[: self.length - self._begin]

    def wait(self, offset: int) -> None:
        """The socket has no room for what is left from `offset` on."""
        if held.total > MOST_HELD:
            self._begin = offset
            self.put(b"")


class PieceMaker:
    """Has pieces made, for one processor."""

    def __init__(self, pool: DiskPool, read_pools: ReadPools) -> None:
        self._pool = pool
        self._read_pools = read_pools

    def make(self, part: Pieces, offset: int, done: Callable[[bytes | memoryview, BaseException | None], None]) -> None:
        """`done(piece, None)`, or `done(b"", error)`, on a pool thread."""
        pool = self._pool if part.source is None else self._read_pools.of_file(part.source.fd)
        pool.submit(part.make, offset, done=lambda piece, error: done(b"" if error is not None else piece, error))
