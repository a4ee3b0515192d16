"""Turning what arrives into frames, with little memory a connection and few copies.

Small frames are received into one buffer that all connections of a processor share, and handled there. What
is left over (the beginning of the next frame) is copied out to the connection. A frame too large for that
gets a buffer of its own from the pool, and the rest of it is received straight into its place.
"""

from __future__ import annotations

from kafkapy._ext.frames import split
from kafkapy._ext.syscalls import recv_into, recv_into_long
from kafkapy.network.buffers import BufferPool, rounded
from kafkapy.network.connection import Connection
from kafkapy.network.replies import Pending

SHARED = 64 << 10
BIG = 16 << 10  # frames from here on get a buffer of their own if they do not arrive whole
HEAD = 4 << 10  # how much is read of a frame that is expected to be a big one, before it gets its buffer
TURN = 4 << 20  # then it is another connection's turn


class PeerClosed(Exception):
    """The peer has finished sending, and all it sent was received."""


class Receiver:
    """Receives for the connections of one processor, one at a time: `receive`, handle the frames, `handled`."""

    def __init__(self, pool: BufferPool, most_frames: int, largest_frame: int) -> None:
        self._pool = pool
        self._most = most_frames
        self._largest = largest_frame
        self._shared = pool.take(SHARED, largest=SHARED)
        self.bytes_in = 0
        # What was cut last: buffer, where the first byte lies that is in no frame, end of the bytes, and what the
        # next frame needs (0: not known, -1: it is a bad one, which the next cut finds out).
        self._view = self._shared.view
        self._position = self._end = self._needed = 0

    def receive(self, conn: Connection) -> list[memoryview]:
        """The whole frames that can be had in one turn: of what the connection carries, else of one receive.

        None may be there yet. After handling them `handled` must be called. Raises PeerClosed, BadFrameSize, or
        OSError when the connection is dead.
        """
        if conn.carries_frames:
            assert conn.carry is not None
            view = memoryview(conn.carry)
            conn.carry = None
            conn.carries_frames = False
            return self._cut(conn, view, len(view))
        if conn.big is not None:
            return self._receive_big(conn)
        view = self._shared.view
        filled = 0
        if conn.carry is not None:
            filled = len(conn.carry)
            view[:filled] = conn.carry
        room = filled + HEAD if conn.expects_big else len(view)
        received = recv_into(conn.fd, view, filled, room)
        if received <= 0:
            if received == 0:
                raise PeerClosed
            conn.readable = False
            return []
        self.bytes_in += received
        conn.carry = None
        end = filled + received
        if end < room:
            conn.readable = conn.gone  # it was emptied; see Connection.readable
        frames = self._cut(conn, view, end)
        if conn.big is not None and conn.readable:
            return self._receive_big(conn)
        return frames

    def _cut(self, conn: Connection, view: memoryview, end: int) -> list[memoryview]:
        frames, self._position, self._needed = split(view, 0, end, self._most, self._largest)
        self._view, self._end = view, end
        if frames:
            conn.expects_big = False
        else:
            self._keep_rest(conn)
        return frames

    def handled(self, conn: Connection, frames: list[memoryview], count: int, pending: Pending | None) -> None:
        """Keeps what belongs to later: all but the first `count` frames, and the whole buffer if `pending` reads it."""
        keep = pending is not None and pending.keeps_buffer
        if conn.big is not None:
            if keep:
                conn.kept = conn.big
            else:
                self._pool.give(conn.big)
            conn.big = None
            return
        if count < len(frames):
            self._position -= sum(4 + len(frame) for frame in frames[count:])
            self._needed = 4 + len(frames[count])
        self._keep_rest(conn)
        if keep and self._view is self._shared.view:
            conn.kept = self._shared
            self._shared = self._pool.take(SHARED, largest=SHARED)
        self._view = self._shared.view

    def release(self, conn: Connection) -> None:
        """Takes back what a closed connection had received."""
        if conn.big is not None:
            if conn.big_end < conn.big_needed:
                self._pool.give(conn.big)
            else:
                self._pool.drop()  # a handler has seen the frame and failed: who knows who still reads it
            conn.big = None
        if conn.kept is not None:
            self._pool.drop()  # the pending request may go on reading it
            conn.kept = None
        conn.carry = None

    def release_kept(self, conn: Connection) -> None:
        """Takes back the buffer that a completed request kept."""
        if conn.kept is not None:
            self._pool.give(conn.kept)
            conn.kept = None

    def distrust_shared(self) -> None:
        """Leaves the shared buffer to whom a handler that failed may have given it."""
        self._pool.drop()
        self._shared = self._pool.take(SHARED, largest=SHARED)

    def _keep_rest(self, conn: Connection) -> None:
        there = self._end - self._position
        if not there:
            return
        rest = self._view[self._position : self._end]
        if self._needed > there and self._needed > BIG:
            conn.big = buffer = self._pool.take(self._needed, there)
            buffer.view[:there] = rest
            conn.big_end = there
            conn.big_needed = self._needed
        else:
            conn.expects_big = False
            conn.carry = bytearray(rest)
            conn.carries_frames = self._needed != 0 and self._needed <= there

    def _receive_big(self, conn: Connection) -> list[memoryview]:
        buffer = conn.big
        assert buffer is not None
        start, end, needed = conn.big_end, conn.big_end, conn.big_needed
        while end < needed and end - start < TURN:
            if end == buffer.capacity:
                buffer.grow(min(rounded(needed), 2 * buffer.capacity))
            room = min(buffer.capacity, needed)
            received = recv_into_long(conn.fd, buffer.view, end, room)
            if received <= 0:
                if received == 0:
                    raise PeerClosed
                conn.readable = False
                break
            end += received
            if end < room:
                conn.readable = conn.gone
                break
        self.bytes_in += end - start
        conn.big_end = end
        if end < needed:
            return []
        conn.expects_big = True
        return [buffer.view[4:needed]]
