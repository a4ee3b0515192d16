"""A part of an open file, handed from the log to the network without its bytes.

The log answers a read with a FileRegion; the processor turns it into `sendfile`. A region holds its
FileHandle, and the handle closes its descriptor when the last holder lets go, so deleting or closing a
segment never breaks a reader that is still sending from it.
"""

from __future__ import annotations

import os
from pathlib import Path


class FileHandle:
    """An open descriptor that is closed when nobody holds the handle any more."""

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, fd: int, path: Path | str) -> None:
        self.fd = fd
        self.path = path

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"FileHandle(fd={self.fd}, path={str(self.path)!r})"


class FileRegion:
    """`length` bytes of `handle` from byte `position`; immutable by convention, shared freely between threads."""

    __slots__ = ("handle", "length", "position")

    def __init__(self, handle: FileHandle, position: int, length: int) -> None:
        self.handle = handle
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves: for the copy path of small regions, for tools and for tests."""
        parts = []
        position, missing = self.position, self.length
        while missing > 0:
            part = os.pread(self.handle.fd, missing, position)
            if not part:
                raise EOFError(f"{self.handle.path} ends {missing} bytes before the region at {self.position} does")
            parts.append(part)
            position += len(part)
            missing -= len(part)
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"FileRegion({str(self.handle.path)!r}, position={self.position}, length={self.length})"
