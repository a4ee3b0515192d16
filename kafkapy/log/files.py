"""The file operations of the log, in one object that is handed in.

Everything that the log does to a disk goes through a Files, so that a test can fill the disk, tear a write or
break a sync at any of them. The methods are thin: the log keeps sizes and positions itself and never asks the
file system for what it knows.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from kafkapy._ext import segment_scan, syscalls

_IOV_MAX = 1024

Buffer = bytes | bytearray | memoryview


class Entry(NamedTuple):
    """A name in a directory, with what one stat says of it."""

    name: str
    size: int
    modified_ms: int
    is_dir: bool


class Files:
    """The real file system. Every method raises OSError as the system does."""

    # --- whole files and names

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def entries(self, path: str) -> list[Entry]:
        """What the directory holds, by name."""
        found = []
        with os.scandir(path) as scan:
            for item in scan:
                try:
                    state = item.stat()
                except FileNotFoundError:  # deleted since the listing
                    continue
                found.append(Entry(item.name, state.st_size, state.st_mtime_ns // 1_000_000, item.is_dir()))
        return sorted(found)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dir(self, path: str) -> None:
        """Makes the directory and those above it; it may be there already."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> bool:
        """Whether the file was there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def remove_tree(self, path: str) -> None:
        import shutil  # loads the compression modules: not at the start

        shutil.rmtree(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def modified_ms(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns // 1_000_000

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Makes or replaces the file, not atomically."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self.write_all(fd, [data], 0)
            if sync:
                self.sync(fd)
        finally:
            self.close(fd)

    def replace(self, path: str, data: bytes) -> None:
        """Replaces the file so that a crash leaves the old or the new one: temporary file, sync, rename, sync."""
        temporary = path + ".tmp"
        self.write(temporary, data)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    # --- an open file

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """One system call; may write less than all."""
        return syscalls.pwritev(fd, buffers, position)

    def write_all(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes every byte and returns their number, or raises; what was written before the error stays."""
        total = sum(map(len, buffers))
        if len(buffers) <= _IOV_MAX:
            done = self.pwritev(fd, buffers, position)
            if done == total:
                return total
        else:
            done = 0
        while done < total:
            more = self.pwritev(fd, _after(buffers, done), position + done)
            if more <= 0:
                raise OSError(errno.ENOSPC, f"a write of {total - done} bytes wrote nothing")
            done += more
        return total

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_path(self, path: str) -> None:
        """Syncs a file that is not open; one that is gone is passed over."""
        try:
            fd = self.open(path)
        except FileNotFoundError:
            return
        try:
            self.sync(fd)
        finally:
            self.close(fd)

    def sync_dir(self, path: str) -> None:
        """Makes names (creations, renames) in the directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # --- searches that read the file themselves (in C)

    locate = staticmethod(segment_scan.locate)
    locate_timestamp = staticmethod(segment_scan.locate_timestamp)
    floor_entry = staticmethod(segment_scan.floor_entry)
    scan = staticmethod(segment_scan.scan)


def _after(buffers: Sequence[Buffer], skip: int) -> list[memoryview]:
    """What remains of the buffers after `skip` bytes, at most as many as one call takes."""
    rest: list[memoryview] = []
    for buffer in buffers:
        if skip >= len(buffer):
            skip -= len(buffer)
            continue
        rest.append(memoryview(buffer)[skip:])
        skip = 0
        if len(rest) == _IOV_MAX:
            break
    return rest
