"""Reads a file from front to back through one buffer. Bytes that were not used yet stay in the buffer when it is filled
again."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

WINDOW = 1 << 20


class Windows:
    """A file that is read from front to back through one buffer, up to the size that the file had when it was
    opened."""

    def __init__(self, path: Path) -> None:
        """Raise OSError if the file cannot be opened."""
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size
        self._room = bytearray(WINDOW)
        self._start = self._length = 0

    def __enter__(self) -> "Windows":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.fd)

    def at(self, position: int, least: int = 0) -> memoryview:
        """Return the file's bytes from `position` on, as many as the buffer holds, and at least `least` bytes unless
        the file ends. They are valid until the next call. Raises OSError."""
        if least > len(self._room):
            larger = bytearray(least)
            larger[: self._length] = self._room[: self._length]
            self._room = larger
        skipped = position - self._start
        view = memoryview(self._room)
        kept = self._length - skipped if 0 <= skipped < self._length else 0
        if skipped and kept:
            view[:kept] = view[skipped : skipped + kept]
        self._start, self._length = position, kept
        wanted = min(len(self._room), self.size - position)
        while self._length < wanted:
            got = os.preadv(self.fd, [view[self._length : wanted]], position + self._length)
            if not got:
                break
            self._length += got
        return view[: self._length]

    def pieces(self, position: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes from `position` to before `end`, in pieces. A piece is valid until the next one is
        yielded."""
        while position < end and len(piece := self.at(position)[: end - position]):
            yield piece
            position += len(piece)

    def has_grown(self) -> bool:
        """Return True if the file's size has changed since it was opened."""
        return os.fstat(self.fd).st_size != self.size
