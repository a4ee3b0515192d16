"""Sends replies until the socket is full: buffers and pieces by sendmsg, file regions by sendfile.

A file region is a byte range of a file, and is never kept in memory: if the client reads slowly, the rest of the region
comes from the page cache again when the socket has room. If zero copy is off, or a region is too short for it, the
region is read into a scratch buffer of the processor and sent from there; bytes that the socket did not take are read
from the file again later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kafkapy._ext import residency, syscalls
from kafkapy.network.pieces import Pieces
from kafkapy.network.replies import Part, Send
from kafkapy.record.file_region import FileHandle, FileRegion

if TYPE_CHECKING:
    from kafkapy.network.read_ahead import ReadAhead

WINDOW = 256 << 10  # bytes of a region that are looked up in the page cache, and sent, at a time
SCRATCH = 128 << 10  # about the bytes that a socket with a send buffer of 100 KiB takes in one call
# Bytes that are sent to a connection before other connections are served. Measured: at 4 MiB a producer waits 2 to 3
# times as long while 8 consumers fetch 1 MiB each.
TURN = 256 << 10
JOIN_BELOW = 64 << 10
_MOST_PARTS = 60

# Results of Sender.flush.
DONE: Final = 0  # everything is sent
BLOCKED: Final = 1  # the socket is full; epoll reports when it has room
COLD: Final = 2  # `Sender.cold` has to be read from disk first
LATER: Final = 3  # there is more to send, after other connections were served
UNMADE: Final = 4  # the next piece of `Sender.unmade` has to be made first


class Residency(Protocol):
    """The functions that check whether file data is in the page cache, and read it if it is.

    `kafkapy._ext.residency` has them for the kernel's page cache; tests use a replacement.
    """

    def ready(self, fd: int, position: int, length: int) -> bool: ...

    def resident(self, fd: int, position: int, length: int) -> bool: ...

    def read_now(self, fd: int, buffer: bytearray, start: int, end: int, position: int) -> int: ...


class PageCache:
    """The Residency that asks the kernel about its page cache."""

    ready = staticmethod(residency.ready)
    resident = staticmethod(residency.resident)
    read_now = staticmethod(residency.read_now)


class RegionEnded(OSError):
    """Raised when a file ends before the end of a region in a reply, or was truncated there, so that the reply's frame
    cannot be completed."""


class Outbox:
    """The unsent part of a connection's replies: parts[index:], without the first `offset` bytes of parts[index]."""

    __slots__ = ("ahead", "index", "marks", "offset", "others", "parts", "warmed")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.index = 0
        self.offset = 0
        self.others = 0  # the number of parts that are not buffers
        self.warmed = 0  # the current part was just read from disk up to this offset: no page cache check needed
        self.ahead: ReadAhead | None = None  # set for a connection whose replies come from disk
        self.marks: list[tuple[int, Callable[[], object]]] = []  # (number of parts before the callback, callback)

    def add(self, send: Send) -> None:
        for part in send:
            if type(part) is FileRegion or type(part) is Pieces:
                if not part.length:
                    continue
                self.others += 1
            self.parts.append(part)

    def mark(self, on_sent: Callable[[], object]) -> None:
        """Have `on_sent` called when all parts that were added so far are sent."""
        self.marks.append((len(self.parts), on_sent))

    def join(self) -> None:
        """Join the parts, which must all be buffers, into one buffer.

        Does nothing if the parts have JOIN_BELOW bytes or more together, or if some of their bytes were already sent.
        """
        if not self.index and not self.offset and sum(map(len, self.parts)) < JOIN_BELOW:
            self.parts = [b"".join(self.parts)]  # type: ignore[arg-type]
            self.marks = [(1, on_sent) for _, on_sent in self.marks]

    def clear(self) -> None:
        self.parts = []
        self.index = self.offset = self.others = self.warmed = 0
        if self.marks:
            self.marks = []

    def advance(self, sent: int) -> None:
        """Move the start of the unsent part forward by the `sent` bytes that were just sent."""
        parts, index, offset = self.parts, self.index, self.offset + sent
        while index < len(parts) and offset >= len(parts[index]):
            offset -= len(parts[index])
            index += 1
        if index != self.index:
            self.warmed = 0
            # Drop the references to the parts that were sent, so that the file of a deleted segment is closed as soon
            # as its last region was sent.
            parts[self.index : index] = [b""] * (index - self.index)
            self.index = index
        self.offset = offset


class Sender:
    """Sends the outboxes (the unsent replies) of all plain connections of a processor.

    A TransportSender sends the outbox of any other connection. After a `flush` that returned COLD, `cold` is the
    (handle, position, length) of the file data to read from disk before the next `flush`. After UNMADE, `unmade` is the
    Pieces (a part of a reply that is made while it is sent) whose next piece has to be made before the next `flush`.
    """

    def __init__(self, zero_copy: bool, copy_below: int, pages: Residency) -> None:
        self._copy_below = copy_below if zero_copy else float("inf")
        self._pages = pages
        self._scratch: bytearray | None = None
        self.cold: tuple[FileHandle, int, int] | None = None
        self.unmade: Pieces | None = None
        self.bytes_out = 0

    def flush(self, fd: int, box: Outbox) -> int:
        """Send as much of the outbox as the socket `fd` takes, and return DONE if everything was sent.

        Otherwise the result says what the rest waits for: room in the socket (BLOCKED), a read from disk (COLD, see
        `cold`), the next piece of a part (UNMADE, see `unmade`), or the turns of other connections (LATER). Raises
        OSError if the connection is dead, and RegionEnded if a file is shorter than a region of it, or was truncated
        there.
        """
        if not box.others and len(box.parts) > 1:
            box.join()
        turn = TURN
        while box.index < len(box.parts):
            part = box.parts[box.index]
            if not box.others:
                sent = syscalls.sendmsg(fd, box.parts, box.index, len(box.parts), box.offset)  # type: ignore[arg-type]
            elif type(part) is FileRegion and part.length >= self._copy_below:
                sent = self._send_region(fd, box, part)
            elif type(part) is Pieces:
                sent = self._send_piece(fd, box, part)
            else:
                sent = self._send_mixed(fd, box)
            if sent < 0:
                if self.cold is not None:
                    return COLD
                box.warmed = 0  # the pages may be evicted by the time that the socket has room
                return UNMADE if self.unmade is not None else BLOCKED
            self.bytes_out += sent
            if not box.offset:  # nearly always the socket takes everything at once: the last part, or all parts
                if sent == len(part) and box.index + 1 == len(box.parts):
                    break
                if not box.index and sent == sum(map(len, box.parts)):
                    break
            box.advance(sent)
            while box.marks and box.marks[0][0] <= box.index:
                box.marks.pop(0)[1]()
            turn -= sent
            if turn <= 0 and box.index < len(box.parts):
                return LATER
        while box.marks:
            box.marks.pop(0)[1]()
        box.clear()
        return DONE

    def _send_region(self, fd: int, box: Outbox, region: FileRegion) -> int:
        if region.is_cut:
            raise _truncated(region)
        source = region.handle.fd
        position = region.position + box.offset
        count = min(region.length - box.offset, WINDOW)
        if box.offset < box.warmed:
            count = min(count, box.warmed - box.offset)
        elif not self._pages.ready(source, position, count):
            self.cold = (region.handle, position, region.length - box.offset)
            return -1
        sent = syscalls.sendfile(fd, source, position, count)
        if sent == 0:
            raise RegionEnded(f"{region} cannot be sent: the file ends at byte {position} or before")
        return sent

    def _send_piece(self, fd: int, box: Outbox, part: Pieces) -> int:
        piece = part.after(box.offset)
        if not piece:
            self.unmade = part
            return -1
        more = box.offset + len(piece) < part.length or box.index + 1 < len(box.parts)
        sent = syscalls.sendmsg(fd, [piece], 0, 1, 0, more)
        if sent < 0:
            del piece  # only the part's own reference is left, so that `wait` can free the piece
            part.wait(box.offset)
        return sent

    def _send_mixed(self, fd: int, box: Outbox) -> int:
        """Send the next buffers and short file regions of the outbox with one sendmsg call.

        Returns the number of bytes that were sent. Returns -1 if the socket is full, or if the first region has to be
        read from disk; in the second case `cold` is set.
        """
        buffers, more = self.next_buffers(box, self._copy_below)
        return syscalls.sendmsg(fd, buffers, 0, len(buffers), 0, more) if buffers else -1

    def next_buffers(self, box: Outbox, copy_below: float) -> tuple[list[bytes | bytearray | memoryview], bool]:
        """Return the next bytes of the outbox as a list of buffers, and True if a part of another kind follows them.

        File regions shorter than `copy_below` are read into the scratch buffer, whose bytes are valid until the next
        call. The list ends before a longer region or a Pieces part (then the second result is True), at file data that
        is not in the page cache, when the scratch buffer is full, and after _MOST_PARTS buffers. If the first bytes
        have to be read from disk, the list is empty and `cold` is set.
        """
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH)
        scratch = memoryview(self._scratch)
        run: list[bytes | bytearray | memoryview] = []
        used, offset, more = 0, box.offset, False
        for index in range(box.index, len(box.parts)):
            part = box.parts[index]
            if type(part) is Pieces:
                more = True
                break
            if type(part) is not FileRegion:
                run.append(memoryview(part)[offset:] if offset else part)  # type: ignore[arg-type]
            elif part.length >= copy_below:
                more = True
                break
            else:
                want = min(part.length - offset, SCRATCH - used)
                got = self._read(part, offset, used, used + want, box.warmed if index == box.index else 0)
                if got > 0:
                    run.append(scratch[used : used + got])
                    used += got
                if got < part.length - offset:
                    # The scratch buffer is full, or the rest is not in memory: send first what was read.
                    if got <= 0 and not run:
                        self.cold = (part.handle, part.position + offset, part.length - offset)
                    break
            offset = 0
            if len(run) == _MOST_PARTS:
                break
        return run, more

    def _read(self, region: FileRegion, offset: int, start: int, end: int, warmed: int) -> int:
        """Read the bytes of the region from `offset` on into scratch[start:end], and return the number of bytes read.

        Returns -1 if `start` equals `end`, or if the bytes are not in the page cache. But if `offset` is less than
        `warmed`, the bytes were read from disk a moment ago: then this method waits for the disk if they are evicted
        again. Raises RegionEnded if the file is too short, or was truncated there.
        """
        if start == end:
            return -1
        assert self._scratch is not None
        if region.is_cut:
            raise _truncated(region)
        position = region.position + offset
        got = self._pages.read_now(region.handle.fd, self._scratch, start, end, position)
        if got < 0 and offset < warmed:
            # The bytes were read a moment ago, but were evicted again, or the file system has no non-blocking read.
            # This read may wait for the disk, because another load could find the bytes evicted again, and so on.
            end = min(end, start + warmed - offset)
            got = os.preadv(region.handle.fd, [memoryview(self._scratch)[start:end]], position)
        if got == 0:
            raise RegionEnded(f"{region} cannot be sent: the file ends at byte {position} or before")
        return got


def _truncated(region: FileRegion) -> RegionEnded:
    return RegionEnded(f"{region} cannot be sent: the log was truncated at byte {region.handle.cut_off.lowest}")
