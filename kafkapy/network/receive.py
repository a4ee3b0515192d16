"""Receives frames, with few copies and little memory for each connection.

Small frames are received into one buffer that all connections of a processor share, and are handled there. Bytes after
the last whole frame (the beginning of the next frame) are copied to the connection. A large frame gets a buffer of its
own from the pool, and the rest of the frame is received directly into that buffer. With `queued.max.request.bytes`, the
frame may have to wait for its buffer (see `request_memory`).
"""

from __future__ import annotations

import sys

from kafkapy._ext.frames import split
from kafkapy._ext.syscalls import unread
from kafkapy.network.buffers import Buffer, BufferPool, rounded
from kafkapy.network.connection import Connection
from kafkapy.network.replies import Pending
from kafkapy.network.request_memory import LOGIN, OTHER, PRODUCE, RequestMemory

SHARED = 64 << 10
BIG = 16 << 10  # larger frames get a buffer of their own if the first receive does not get all of them
HEAD = 4 << 10  # bytes that are received before a frame gets its own buffer, if it is expected to be large
TURN = 4 << 20  # bytes that are received of a large frame before other connections are served
_PRODUCE_KEY = b"\0\0"  # Produce's API key, with which a request begins
_API_END = 6  # the position after the API key in a frame with its size field


class PeerClosed(Exception):
    """Raised when the peer has closed its side of the connection, and everything that the peer sent was received."""


class Receiver:
    """Receives frames for all connections of a processor.

    For one connection at a time: call `receive`, handle the frames, then call `handled`.
    """

    def __init__(self, pool: BufferPool, most_frames: int, memory: RequestMemory | None = None) -> None:
        self._pool = pool
        self._memory = memory
        self._most = most_frames
        self._shared = pool.take(SHARED, largest=SHARED)
        # Replaces the shared buffer when another thread still reads that. It is allocated before a handler gets any
        # frame, so that the replacement cannot fail.
        self._spare: Buffer | None = None
        self.bytes_in = 0
        # The result of the last split: the buffer, the position after the last whole frame, the end of the received
        # bytes, and the size that the next frame needs (0: not known yet, -1: its size is invalid, and the next split
        # raises BadFrameSize).
        self._view = self._shared.view
        self._position = self._end = self._needed = 0

    def receive(self, conn: Connection) -> list[memoryview]:
        """Return the connection's next whole frames, without their sizes; an empty list if no frame is complete yet.

        The frames come from bytes that were received before (`conn.carry`), or from one receive. After the frames are
        handled, the caller calls `handled`, or `leave` if the handler failed. Raises PeerClosed at the end of the
        stream, BadFrameSize for an invalid frame size, and OSError if the connection is dead or there is no memory.
        """
        if conn.carries_frames:
            assert conn.carry is not None
            view = memoryview(conn.carry)
            conn.carry = None
            conn.carries_frames = False
            end = len(view)
        elif conn.big is not None:
            return self._receive_big(conn)
        else:
            if self._spare is None:
                self._spare = self._pool.take(SHARED, largest=SHARED)
            view = self._shared.view
            filled = 0
            if conn.carry is not None:
                filled = len(conn.carry)
                view[:filled] = conn.carry
            room = filled + HEAD if conn.expects_big else len(view)
            received = conn.recv_into(conn.fd, view, filled, room)
            if received <= 0:
                if received == 0:
                    raise PeerClosed
                conn.readable = False
                return []
            self.bytes_in += received
            conn.carry = None
            end = filled + received
            if end < room:
                conn.readable = conn.gone  # the socket is empty; see Connection.readable
        frames, self._position, self._needed = split(view, 0, end, self._most, conn.largest_frame)
        self._view, self._end = view, end
        if frames:
            conn.expects_big = False
            return frames
        if self._position < end:
            self._keep_rest(conn)
        return self._receive_big(conn) if conn.big is not None and conn.readable else frames

    def receive_ahead(self, conn: Connection) -> bool:
        """Receive the next frame while the handler still uses the frame before. `receive` returns it afterwards.

        This receives at most one large frame, or the small frames of one receive. Return True if the frame is not
        complete, and the socket may have more of it. Raises the exceptions of `receive`.
        """
        if conn.carries_frames or (conn.big is not None and conn.big_end == conn.big_needed):
            return False
        frames = self.receive(conn)
        if not frames:
            return conn.readable
        if conn.big is None:
            self.handled(conn, frames, 0, None)
        conn.readable = True  # `receive` has frames to return, whether or not anything is in the socket
        return False

    def handled(
        self,
        conn: Connection,
        frames: list[memoryview],
        count: int,
        pending: Pending | None,
        *,
        may_reserve: bool = True,
    ) -> None:
        """Save the received bytes after the first `count` of `frames`, which were handled, for the next `receive`.

        If the request of `pending` still reads its frame, the whole receive buffer is also kept until that request
        completes. `may_reserve` is False if the requests were gathered: the connection may still become pending or
        muted, so no memory is reserved for the next frame now.
        """
        if conn.closing:  # perhaps because the handler failed
            self.leave(conn)
            return
        keep = pending is not None and pending.keeps_buffer
        if conn.big is not None:
            if keep:
                conn.kept = conn.big
            else:
                self._give(conn.big)
            conn.big = None
            return
        if keep and self._view is self._shared.view:
            conn.kept = self._replace_shared()  # before `_keep_rest`, which may fail for lack of memory
            if self._memory is not None:
                self._memory.charge(SHARED)
                conn.kept.reserved = SHARED
        if count < len(frames):
            self._position -= sum(4 + len(frame) for frame in frames[count:])
            self._needed = 4 + len(frames[count])
        if self._position < self._end:
            self._keep_rest(conn, may_reserve=may_reserve)
        self._view = self._shared.view

    def leave(self, conn: Connection) -> None:
        """Give up the buffer with the frames of the last `receive`, so that nothing more is received into it.

        Called instead of `handled` for a connection that will be closed. A handler that failed may already have passed
        the frames to another thread, such as records to a queued append. The buffer is unmapped when no view of it is
        left. Never raises.
        """
        if conn.big is not None:
            self._drop(conn, conn.big)
            conn.big = None
        elif self._view is self._shared.view:
            self._replace_shared()
            self._pool.drop()
        self._view = self._shared.view

    def is_more(self, conn: Connection) -> bool:
        """Return whether bytes from the peer wait in the connection's socket, or in its transport, to be received."""
        return conn.transport.is_more() if conn.transport is not None else unread(conn.fd) == 1

    def release(self, conn: Connection) -> None:
        """Release all receive buffers of a closed connection.

        They return to the pool, except for a buffer that a pending request may still read.
        """
        if conn.big is not None:
            self._give(conn.big)  # holds an incomplete frame, which no handler has seen
            conn.big = None
        elif conn.starved:
            assert self._memory is not None
            self._memory.forget(conn)
        self.release_kept(conn, reuse=False)  # the pending request may still read this buffer
        conn.carry = None

    def release_kept(self, conn: Connection, *, reuse: bool) -> None:
        """Release the receive buffer that the connection's pending request has kept, if there is one.

        With `reuse`, the buffer returns to the pool: the caller knows that no thread reads it any more. Otherwise the
        buffer is unmapped when no view of it is left.
        """
        if conn.kept is not None:
            if reuse:
                self._give(conn.kept)
            else:
                self._drop(conn, conn.kept)
            conn.kept = None

    def granted(self, conn: Connection, size: int) -> None:
        """Begin to receive the large frame of a connection that has waited for memory. `size` bytes were reserved.

        Raises OSError if there is no memory."""
        assert self._memory is not None
        if conn.closed:
            self._memory.release(size)
            return
        assert conn.carry is not None
        rest, conn.carry = memoryview(conn.carry), None
        conn.starved = False
        self._begin_big(conn, rest, size, self._memory)

    def _give(self, buffer: Buffer) -> None:
        """Return a lent buffer to the pool. No thread may read it any more."""
        reserved, buffer.reserved = buffer.reserved, 0
        self._pool.give(buffer)
        if reserved:
            assert self._memory is not None
            self._memory.release(reserved)

    def _drop(self, conn: Connection, buffer: Buffer) -> None:
        """Give up a lent buffer that other threads may still read. It is unmapped when no view of it is left."""
        self._pool.drop()
        if buffer.reserved:
            assert self._memory is not None
            self._memory.release_when_dropped(buffer.reserved, buffer.mapping, conn.processor)

    def _replace_shared(self) -> Buffer:
        """Make the spare buffer the shared one. Return the former shared buffer, which still counts as lent."""
        assert self._spare is not None
        shared, self._shared, self._spare = self._shared, self._spare, None
        return shared

    def _keep_rest(self, conn: Connection, *, may_reserve: bool = True) -> None:
        there = self._end - self._position
        rest = self._view[self._position : self._end]
        memory = None if conn.outgoing else self._memory
        is_big = self._needed > there and self._needed > BIG
        if is_big and (memory is None or (may_reserve and _can_reserve_now(conn, there))):
            if memory is None or memory.reserve(conn, self._needed, _kind(conn, rest)):
                self._begin_big(conn, rest, self._needed, memory)
            else:
                conn.carry = bytearray(rest)
                conn.starved = True
        else:
            conn.expects_big = False
            conn.carry = bytearray(rest)
            conn.carries_frames = self._needed != 0 and self._needed <= there

    def _begin_big(self, conn: Connection, rest: memoryview, needed: int, memory: RequestMemory | None) -> None:
        """Take a buffer for a frame of `needed` bytes with its size field, of which `rest` has arrived."""
        there = len(rest)
        # A peer that has not authenticated must not hold a large buffer, which the pool may have free.
        largest = sys.maxsize if conn.login is None else rounded(needed)
        try:
            conn.big = buffer = self._pool.take(needed, there, largest)
        except OSError:
            if memory is not None:
                memory.release(needed)
            raise
        if memory is not None:
            buffer.reserved = needed
        buffer.view[:there] = rest
        conn.big_end = there
        conn.big_needed = needed
        conn.big_began = conn.processor.now

    def _receive_big(self, conn: Connection) -> list[memoryview]:
        buffer = conn.big
        assert buffer is not None
        start, end, needed = conn.big_end, conn.big_end, conn.big_needed
        while end < needed and end - start < TURN:
            if end == buffer.capacity:
                buffer.grow(min(rounded(needed), 2 * buffer.capacity))
            room = min(buffer.capacity, needed)
            received = conn.recv_into_long(conn.fd, buffer.view, end, room)
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


def _can_reserve_now(conn: Connection, there: int) -> bool:
    """Return False if the memory for a large frame must be reserved later, because its API key has not arrived, or
    because nothing is received from the connection now."""
    return there >= _API_END and conn.pending is None and not conn.muted_until


def _kind(conn: Connection, rest: memoryview) -> int:
    """Return the kind of a large request that begins with `rest`, for RequestMemory."""
    if conn.login is not None:
        return LOGIN
    return PRODUCE if rest[4:_API_END] == _PRODUCE_KEY else OTHER
