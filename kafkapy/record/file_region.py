"""A range of an open file, which the log passes to the network layer instead of the bytes.

The log's read result is a FileRegion, which the processor sends with `sendfile`. A region refers to its FileHandle,
which closes the descriptor when the last reference is gone. So deleting or closing a segment does not affect a reader
that is still sending from it.
"""

from __future__ import annotations

import os
from pathlib import Path


class CutOff:
    """The byte position at which a file was truncated after its handles were opened. Later positions may hold other
    bytes by now than when the regions of these handles were made.

    `later` is the CutOff of the handles that were opened after the truncation, None if there was no truncation. The
    next truncation sets its position, and may cut off more of the older regions, too.
    """

    __slots__ = ("later", "position")

    def __init__(self) -> None:
        self.position = 1 << 62
        self.later: CutOff | None = None

    def truncated(self, position: int) -> CutOff:
        """Note a truncation at this byte, and return the CutOff of the handles that are opened from now on."""
        self.later = CutOff()
        self.position = position
        return self.later

    @property
    def lowest(self) -> int:
        """Return the lowest byte position at which the file was truncated so far."""
        lowest, later = self.position, self.later
        while later is not None:
            lowest, later = min(lowest, later.position), later.later
        return lowest


_NEVER_CUT = CutOff()


class FileHandle:
    """An open file descriptor that is closed when the last reference to the handle is gone."""

    __slots__ = ("__weakref__", "cut_off", "fd", "path")

    def __init__(self, fd: int, path: Path | str) -> None:
        self.fd = fd
        self.path = path
        self.cut_off = _NEVER_CUT  # for a file that may be truncated, an object that all its handles share

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"FileHandle(fd={self.fd}, path={str(self.path)!r})"


class FileRegion:
    """A range of an open file: `length` bytes of `handle` from byte `position`. It must not be changed, so threads
    share it freely."""

    __slots__ = ("handle", "length", "position")

    def __init__(self, handle: FileHandle, position: int, length: int) -> None:
        self.handle = handle
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def is_cut(self) -> bool:
        """Return True if a part of the region was truncated. Other bytes may be in its place now."""
        end, cut_off = self.position + self.length, self.handle.cut_off
        while end <= cut_off.position:
            if cut_off.later is None:
                return False
            cut_off = cut_off.later
        return True

    def read(self) -> bytes:
        """Return the bytes of the region. For small regions that are copied, for tools and tests. Raises EOFError if
        the file is too short."""
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
