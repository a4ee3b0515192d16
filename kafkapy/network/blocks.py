"""Bytes of files that were read from disk into buffers of the broker, and not into the page cache.

A consumer that is far behind reads each byte once. In the page cache its bytes would take the place of what others
need, and the kernel would have to make room for them, which delays writers. So they are read with RWF_DONTCACHE
(Linux 6.14), which leaves the page cache as it was, and sent from these buffers. Consumers that read the same bytes
shortly after each other share a buffer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from kafkapy._ext import residency
from kafkapy.network.buffers import TRIMMED, Buffer, BufferPool, rounded
from kafkapy.record.file_region import FileHandle

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Block:
    """The bytes `start` up to `end` of a file, in a buffer. `readers` is how many readers need them.

    The bytes are those at the time of the read. If the file is truncated later, its regions say so (`is_cut`).
    """

    __slots__ = ("buffer", "end", "handle", "readers", "start")

    def __init__(self, handle: FileHandle, start: int, end: int, buffer: Buffer) -> None:
        self.handle = handle
        self.start = start
        self.end = end
        self.buffer = buffer
        self.readers = 0

    def covers(self, handle: FileHandle, position: int) -> bool:
        return self.handle is handle and self.start <= position < self.end

    def view(self, position: int, length: int) -> memoryview:
        """Return the bytes from file position `position` on, at most `length`. The view is valid while the block has
        readers."""
        return self.buffer.view[position - self.start : min(position + length, self.end) - self.start]


class Blocks:
    """The blocks of one processor, of at most `limit` bytes together. Only the processor's thread calls the methods.

    Blocks without readers are kept, for readers that come later, until their buffers are needed or `trim` finds that
    they were not read for a while.
    """

    def __init__(self, buffers: BufferPool, limit: int) -> None:
        self._buffers = buffers
        self._limit = limit
        self._blocks: dict[Block, None] = {}  # those that were used last are at the end
        self._of_files: dict[FileHandle, list[Block]] = {}
        self.bytes = 0  # of buffers, also of those that are being read into
        self.refused = 0  # how many times a buffer was asked for while readers needed all of them
        self._unused: Sequence[Block] = ()  # blocks without readers at the last call of `trim`
        self._cached_devices: set[int] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    def take(self, handle: FileHandle, size: int) -> Buffer | None:
        """Return a buffer for reading `size` bytes of a file; None if they are to be read into the page cache.

        That is so if the file's disk does not support uncached reads, or if all memory is in use.
        """
        size = rounded(size)
        if self._limit < size or (self._cached_devices and os.fstat(handle.fd).st_dev in self._cached_devices):
            return None
        while self.bytes + size > self._limit:
            oldest = next((block for block in self._blocks if not block.readers), None)
            if oldest is None:
                self.refused += 1
                return None
            self._remove(oldest)
            if oldest.buffer.capacity == size:
                return oldest.buffer
            self.give_back(oldest.buffer)
        buffer = self._buffers.take(size, size, size)
        self.bytes += buffer.capacity
        return buffer

    def put(self, handle: FileHandle, start: int, end: int, buffer: Buffer) -> Block:
        """Return a new block, whose bytes were read into a buffer of `take`."""
        block = Block(handle, start, end, buffer)
        self._blocks[block] = None
        self._of_files.setdefault(handle, []).append(block)
        return block

    def give_back(self, buffer: Buffer) -> None:
        """Return a buffer of `take` that no block needs."""
        self.bytes -= buffer.capacity
        self._buffers.give(buffer)

    def find(self, handle: FileHandle, position: int) -> Block | None:
        """Return a block with the byte of the file at `position`, or None."""
        for block in self._of_files.get(handle, ()):
            if block.start <= position < block.end:
                del self._blocks[block]
                self._blocks[block] = None
                return block
        return None

    def note_unsupported(self, handle: FileHandle) -> None:
        """Read the files of this file's disk into the page cache from now on."""
        self._cached_devices.add(os.fstat(handle.fd).st_dev)

    def trim(self) -> None:
        """Free blocks that had no readers at the last call, and have none now, of about TRIMMED bytes. Called every few
        seconds."""
        before = self.bytes
        for block in self._unused:
            if before - self.bytes < TRIMMED and not block.readers and block in self._blocks:
                self._remove(block)
                self.give_back(block.buffer)
        self._unused = [block for block in self._blocks if not block.readers]

    def _remove(self, block: Block) -> None:
        del self._blocks[block]
        of_file = self._of_files[block.handle]
        of_file.remove(block)
        if not of_file:
            del self._of_files[block.handle]


def read(handle: FileHandle, start: int, end: int, buffer: Buffer) -> int | None:
    """Read the bytes `start` up to `end` of a file into a buffer, past the page cache. Return the number of bytes read.

    It is less at the end of the file, and None if the file system or the kernel does not support such reads. May wait
    for the disk. Raises OSError.
    """
    try:
        return residency.read_uncached(handle.fd, buffer.view, 0, end - start, start)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
