"""A part of a reply that is made while it is sent: the length is promised, the bytes come piece by piece.

What is too large to be held, and is no part of a file, goes out like this: a piece is made on the disk pool, given to
the socket, forgotten, and only then the next one is made. A slow reader holds one piece, one that has gone none.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkapy.runtime.disk_pool import DiskPool

_NOTHING = memoryview(b"")


class Pieces:
    """`length` bytes, which `make()` gives piece by piece. `ready` may be the first piece.

    `make` runs on the disk pool, never twice at a time. What it gives beyond the length is cut off; an exception, or
    an empty piece before the length is reached, closes the connection, for the frame cannot be completed.
    """

    __slots__ = ("_begin", "_piece", "length", "make")

    def __init__(self, length: int, make: Callable[[], bytes], ready: bytes = b"") -> None:
        self.length = length
        self.make = make
        self._begin = 0  # offset in the part at which the piece begins
        self._piece = memoryview(ready)[:length]

    def __len__(self) -> int:
        return self.length

    def after(self, offset: int) -> memoryview:
        """What there is of the current piece from `offset` (of the part) on; nothing: the next has to be made."""
        if offset >= self._begin + len(self._piece):
            self._begin, self._piece = offset, _NOTHING
        return self._piece[offset - self._begin :]

    def put(self, piece: bytes) -> None:
        """The piece that follows the one that is sent."""
        self._piece = memoryview(piece)[: self.length - self._begin]


class PieceMaker:
    """Has pieces made, for one processor."""

    def __init__(self, pool: DiskPool) -> None:
        self._pool = pool

    def make(self, part: Pieces, done: Callable[[bytes, BaseException | None], None]) -> None:
        """`done(piece, None)`, or `done(b"", error)`, on a pool thread."""
        self._pool.submit(part.make, done=lambda piece, error: done(b"" if error is not None else piece, error))
