"""The file operations of the log, in one object that is handed in.

Everything that the log does to a disk goes through a Files, so that a test can fill the disk, tear a write or
break a sync at any of them. The methods are thin: the log keeps sizes and positions itself and never asks the
file system for what it knows.

An open file is a FileHandle, not a number: while an operation runs its argument keeps the file open, so a segment
that another thread deletes meanwhile cannot have its descriptor closed, and given to another file, under a reader.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from stat import S_ISDIR
from typing import Any, NamedTuple, TypeVar

from kafkapy._ext import dir_look, residency, segment_scan, syscalls
from kafkapy.log.open_files import OpenFiles
from kafkapy.record.file_region import FileHandle

_IOV_MAX = 1024
_READ = 1 << 14
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})

Buffer = bytes | bytearray | memoryview
F = TypeVar("F", bound="Files")


class Entry(NamedTuple):
    """A name in a directory, with what one stat says of it: zeros where that was not wanted.

    `content` is what a small file holds, where that was wanted and could be read.
    """

    name: str
    size: int
    is_dir: bool
    modified_ms: int = 0
    content: bytes | None = None


class Files:
    """The real file system. Every method raises OSError as the system does.

    Where the process has no descriptor left, files that the logs only keep open are closed, and it is tried again.
    """

    open_files: OpenFiles  # those that are kept open; whoever wants a limit puts another one here

    def __new__(cls: type[F], *_: Any, **__: Any) -> F:  # those who replace methods need not know of it
        made = super().__new__(cls)
        made.open_files = OpenFiles()
        return made

    # --- names and whole files

    def entries(self, path: str, sizes_of: tuple[str, ...] = ("",)) -> list[Entry]:
        """What the directory holds, by name; size and time are asked only of names that end so."""
        found = []
        with os.scandir(path) as scan:
            for item in scan:
                if not item.name.endswith(sizes_of):
                    found.append(Entry(item.name, 0, item.is_dir()))
                    continue
                try:
                    stat = item.stat()
                    modified_ms = stat.st_mtime_ns // 1_000_000
                    found.append(Entry(item.name, stat.st_size, S_ISDIR(stat.st_mode), modified_ms))
                except FileNotFoundError:  # deleted since the listing
                    continue
        return sorted(found)

    def look(self, path: str) -> dict[str, Entry]:
        """What the directory holds, by name and in the order of names, with the content of small files."""
        try:
            found = dir_look.look(path)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self.open_files.shed():
                raise
            found = dir_look.look(path)
        return {one[0]: Entry._make(one) for one in sorted(found)}

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
        """Removes the directory and all in it; it may be gone already."""
        import shutil  # loads the compression modules: not at the start

        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def read(self, path: str) -> bytes:
        fd = self._open_fd(path, os.O_RDONLY)
        try:
            data = os.read(fd, _READ)
            if len(data) < _READ:  # of a file, that is its end
                return data
            parts = [data]
            while part := os.read(fd, _READ):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Makes or replaces the file, not atomically."""
        file = self.open(path, create=True)
        self.truncate(file, 0)
        self.write_all(file, [data], 0)
        if sync:
            self.sync(file)

    def replace(self, path: str, data: bytes) -> None:
        """Replaces the file so that a crash leaves the old or the new one: temporary file, sync, rename, sync."""
        temporary = path + ".tmp"
        self.write(temporary, data)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        """Syncs a file that is not open; one that is gone is passed over."""
        try:
            file = self.open(path)
        except FileNotFoundError:
            return
        self.sync(file)

    def sync_dir(self, path: str) -> None:
        """Makes names (creations, renames) in the directory durable."""
        fd = self._open_fd(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # --- an open file

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """For reading and writing; closed when nobody holds the handle any more."""
        return FileHandle(self._open_fd(path, os.O_RDWR | (os.O_CREAT if create else 0)), path)

    def _open_fd(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self.open_files.shed():
                raise
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def pwritev(self, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        """One system call; may write less than all."""
        return syscalls.pwritev(file.fd, buffers, position)

    def write_all(self, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        """Writes every byte and returns their number, or raises; what was written before the error stays."""
        total = sum(map(len, buffers))
        done = self.pwritev(file, buffers, position) if len(buffers) <= _IOV_MAX else 0
        while done < total:
            more = self.pwritev(file, _after(buffers, done), position + done)
            if more <= 0:
                raise OSError(errno.ENOSPC, f"a write of {total - done} bytes wrote nothing")
            done += more
        return total

    def pread(self, file: FileHandle, size: int, position: int) -> bytes:
        return os.pread(file.fd, size, position)

    def read_into(self, file: FileHandle, buffer: memoryview, position: int) -> int:
        """Reads at most as much as `buffer` holds, without the interpreter's lock; 0 at the end of the file."""
        return os.preadv(file.fd, [buffer], position)

    def in_memory(self, file: FileHandle, position: int) -> bool:
        """Whether the byte can be read without waiting; never waits itself."""
        return residency.ready(file.fd, position, 1)

    def truncate(self, file: FileHandle, size: int) -> None:
        os.ftruncate(file.fd, size)

    def sync(self, file: FileHandle) -> None:
        os.fsync(file.fd)

    def modified_ms(self, file: FileHandle) -> int:
        return os.fstat(file.fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    # --- searches that read the file themselves, in C: see kafkapy._ext.segment_scan

    def locate(
        self, file: FileHandle, position: int, end: int, offset: int, nowait: bool = False
    ) -> tuple[int, int, int] | None:
        return segment_scan.locate(file.fd, position, end, offset, nowait)

    def locate_timestamp(
        self, file: FileHandle, position: int, end: int, timestamp: int, offset: int
    ) -> tuple[int, int] | None:
        return segment_scan.locate_timestamp(file.fd, position, end, timestamp, offset)

    def floor_entry(
        self, file: FileHandle, count: int, width: int, target: int, nowait: bool = False
    ) -> tuple[int, int, int] | None:
        return segment_scan.floor_entry(file.fd, count, width, target, nowait)

    def ceiling_position(
        self, file: FileHandle, count: int, position: int, nowait: bool = False
    ) -> tuple[int, int] | None:
        return segment_scan.ceiling_position(file.fd, count, position, nowait)

    def scan(
        self, file: FileHandle, position: int, end: int, base_offset: int, interval: int, verify: bool = True
    ) -> segment_scan.Scan:
        return segment_scan.scan(file.fd, position, end, base_offset, interval, verify)


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
