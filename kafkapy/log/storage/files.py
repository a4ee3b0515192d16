"""All file operations of the log, in one replaceable object.

The log accesses the disk only through a Files object, so that a test can simulate a full disk, a torn write or a
failing sync at any operation. The methods are thin: the log tracks sizes and positions itself and does not ask the file
system for them.

An open file is a FileHandle, not a descriptor number. While an operation runs, its argument keeps the file open. With a
plain number, another thread could delete the segment and close the descriptor during the operation, and the number
could be given to another file, which the operation would then read or write.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from stat import S_ISDIR
from typing import Any, NamedTuple, TypeVar

from kafkapy._ext import dir_look, residency, segment_scan, syscalls
from kafkapy.log.storage.open_files import OpenFiles
from kafkapy.log.storage.whole_sync import sync_file_system
from kafkapy.record.file_region import FileHandle

_IOV_MAX = 1024
_READ = 1 << 14
TEMPORARY = ".tmp"  # added to the name of a file that is written to replace another
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})

Buffer = bytes | bytearray | memoryview
F = TypeVar("F", bound="Files")
T = TypeVar("T")

_ROW = 3  # int64s in a Row


class Entry(NamedTuple):
    """The name of a file or directory, with its size in bytes and modification time if requested, else zeros.

    `content` is the content of a small file, if it was requested and could be read.
    """

    name: str
    size: int
    is_dir: bool
    modified_ms: int = 0
    content: bytes | None = None


class OlderFiles:
    """The complete segments before the last one of a log, ascending by base offset."""

    __slots__ = ("base_offsets", "sizes", "snapshots")

    def __init__(self, rows: bytes = b"") -> None:
        """`rows`: Rows of ext/dir_look.pxd."""
        numbers = array("q", rows)
        self.base_offsets = numbers[::_ROW].tolist()
        self.sizes = numbers[1::_ROW]  # of the .log files, in bytes
        # The base offsets of the segments that have a producer snapshot.
        self.snapshots = list(compress(self.base_offsets, numbers[2::_ROW]))

    def __len__(self) -> int:
        return len(self.base_offsets)


class Files:
    """The operations on the real file system. Every method raises OSError if its system call fails.

    If the process has no file descriptor left, files that the logs only keep open for later use are closed, and the
    operation is retried.
    """

    open_files: OpenFiles  # the files that are kept open; assign another OpenFiles to set a limit

    # subclasses with their own __init__ need not call super().__init__
    def __new__(cls: type[F], *_: Any, **__: Any) -> F:
        files = super().__new__(cls)
        files.open_files = OpenFiles()
        return files

    # --- names and whole files

    def entries(self, path: str, sizes_of: tuple[str, ...] = ("",)) -> list[Entry]:
        """Return the entries of the directory `path`, sorted by name.

        Only entries whose names end with one of `sizes_of` get sizes and modification times.
        """
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
        """Return the entries of the directory `path` by name, in sorted order, with the content of small files."""
        return _by_name(self._retried(dir_look.look, path))

    def look_apart(self, path: str) -> tuple[dict[str, Entry], OlderFiles]:
        """Return the entries of a partition's directory as `look` does, but without the files of complete older
        segments, and those segments.

        A segment is complete if it has its two indexes and no file that is unusual, such as a transaction index.
        """
        found, rows = self._retried(dir_look.look_apart, path)
        return _by_name(found), OlderFiles(rows)

    def _retried(self, look: Callable[[str], T], path: str) -> T:
        try:
            return look(path)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self.open_files.shed():
                raise
        return look(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dir(self, path: str) -> None:
        """Create the directory and its parents if they do not exist."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> bool:
        """Remove the file. Return False if it did not exist."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def remove_tree(self, path: str) -> None:
        """Remove the directory and everything in it, if it exists."""
        import shutil  # imported here because it loads the compression modules

        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def read(self, path: str) -> bytes:
        """Return the whole content of a file."""
        fd = self._open_fd(path, os.O_RDONLY)
        try:
            data = os.read(fd, _READ)
            if len(data) < _READ:  # a short read of a regular file is its end
                return data
            parts = [data]
            while part := os.read(fd, _READ):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Create the file with this content, or overwrite it. With `sync`, the file is synced afterwards.

        Not atomic: a crash may leave a part of the content.
        """
        file = self.open(path, create=True)
        self.truncate(file, 0)
        self.write_all(file, [data], 0)
        if sync:
            self.sync(file)

    def replace(self, path: str, data: bytes) -> None:
        """Replace the file's content atomically: a crash leaves either the old or the new content.

        Writes a temporary file, syncs it, renames it, and syncs the directory.
        """
        temporary = path + TEMPORARY
        self.write(temporary, data)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        """Sync the file at `path`, which need not be open. Do nothing if the file does not exist."""
        try:
            file = self.open(path)
        except FileNotFoundError:
            return
        self.sync(file)

    def sync_dir(self, path: str) -> None:
        """Make file creations and renames in the directory durable."""
        fd = self._open_fd(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, fd: int) -> bool:
        """Sync all files of the file system that the open file `fd` belongs to. Return False, and sync nothing, if that
        would prove less than syncing each file: see whole_sync.
        """
        return sync_file_system(fd)

    # --- an open file

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """Open a file for reading and writing; with `create`, create it if it does not exist.

        The descriptor closes when the last reference to the returned handle is gone.
        """
        return FileHandle(self._open_fd(path, os.O_RDWR | (os.O_CREAT if create else 0)), path)

    def _open_fd(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self.open_files.shed():
                raise
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def pwritev(self, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers at `position` with one system call, which may write less.

        Return the number of bytes written.
        """
        return syscalls.pwritev(file.fd, buffers, position)

    def write_all(self, file: FileHandle, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers at `position` completely, and return their total size in bytes.

        If this raises, a part may have been written.
        """
        total = sum(map(len, buffers))
        done = self.pwritev(file, buffers, position) if len(buffers) <= _IOV_MAX else 0
        while done < total:
            more = self.pwritev(file, _after(buffers, done), position + done)
            if more <= 0:
                raise OSError(errno.ENOSPC, f"a write of {total - done} bytes wrote nothing")
            done += more
        return total

    def size(self, file: FileHandle) -> int:
        return os.fstat(file.fd).st_size

    def pread(self, file: FileHandle, size: int, position: int) -> bytes:
        return os.pread(file.fd, size, position)

    def read_into(self, file: FileHandle, buffer: memoryview, position: int) -> int:
        """Read bytes from `position` into `buffer`, without holding the GIL.

        Return their number, 0 at the end of the file.
        """
        return os.preadv(file.fd, [buffer], position)

    def in_memory(self, file: FileHandle, position: int) -> bool:
        """Return True if the byte at `position` can be read without waiting for the disk.

        This check never waits itself.
        """
        return residency.ready(file.fd, position, 1)

    def truncate(self, file: FileHandle, size: int) -> None:
        os.ftruncate(file.fd, size)

    def sync(self, file: FileHandle) -> None:
        os.fsync(file.fd)

    def modified_ms(self, file: FileHandle) -> int:
        return os.fstat(file.fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    # --- searches in C, which read the file themselves: see kafkapy._ext.segment_scan

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


def _by_name(found: Iterable[tuple[str, int, bool, int, bytes | None]]) -> dict[str, Entry]:
    return {one[0]: Entry._make(one) for one in sorted(found)}


def _after(buffers: Sequence[Buffer], skip: int) -> list[memoryview]:
    """Return the buffers without their first `skip` bytes, at most as many buffers as one system call takes."""
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
