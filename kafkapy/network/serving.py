"""Serves connections: sends unsent replies, receives frames, calls the handler, sends the handler's replies.

For each connection, a step is done only after the steps before are complete. That is how back-pressure works: while a
reply is unsent or pending, nothing is received from the connection, so the client's socket fills up and the client has
to wait.

On a connection that this process opened, responses are received even while a request is unsent. Otherwise two servers
could wait for each other for ever: each sends only when it has received, and receives only when it has sent. While the
handler of such a connection uses a response on another thread, the next response is received.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy._ext.frames import BadFrameSize
from kafkapy.network.cold import ColdReads
from kafkapy.network.connection import Connection
from kafkapy.network.pieces import PieceMaker, Pieces
from kafkapy.network.read_ahead import ReadAhead
from kafkapy.network.receive import PeerClosed, Receiver
from kafkapy.network.replies import CLOSE, GATHERED, NO_REPLY, Handler, Last, Pending, Reply, Send, Timed, Word
from kafkapy.network.sends import BLOCKED, COLD, DONE, LATER, UNMADE, RegionEnded, Residency

if TYPE_CHECKING:
    from kafkapy.network.processor import Processor

log = logging.getLogger(__name__)

_TLS_HANDSHAKES = range(0x160300, 0x160305)  # the first three bytes of a TLS client: a record's type and version


class Serving:
    """Serves the connections of one processor, on the processor's thread."""

    def __init__(
        self,
        processor: Processor,
        handler: Handler,
        receiver: Receiver,
        cold: ColdReads,
        maker: PieceMaker,
        pages: Residency,
    ) -> None:
        self._processor = processor
        self._handler = handler
        self._receiver = receiver
        self._cold = cold
        self._maker = maker
        self._pages = pages
        self.frames_in = 0

    def serve(self, conn: Connection) -> None:
        """Send, receive and handle frames on a connection that was queued, as far as that is possible now.

        Raises nothing: an error closes this connection only.
        """
        conn.queued = False
        if conn.closed:
            return
        conn.last_active = self._processor.now
        try:
            if conn.parked:
                if conn.broken:
                    self._close(conn)
                return
            if conn.outbox.parts and not self._send(conn) and (conn.parked or not conn.outgoing):
                return
            if conn.closing or (self._processor.draining and conn.pending is None):
                self._close(conn)
            elif conn.pending is not None:
                if conn.outgoing and not conn.broken:
                    self._receive_ahead(conn)
                elif conn.gone:
                    self._close_if_dead(conn)
            elif conn.muted_until or conn.starved:
                if conn.broken:
                    self._close(conn)
            elif conn.readable or conn.carries_frames or (conn.transport is not None and conn.transport.wants_write):
                frames = self._receiver.receive(conn)
                if frames:
                    self._handle(conn, frames)
                elif conn.readable and not conn.starved:
                    self._processor.queue(conn)
                elif conn.outbox.parts:
                    self._send(conn)  # the transport may have finished its handshake
        except Exception as error:
            self._failed(conn, error)

    def answer_gathered(self) -> None:
        """Have the handler answer the requests that it has put into the processor's `gathered`, and send the replies.

        If the handler's `end_turn` raises, the connections of all these requests are closed.
        """
        gathered, self._processor.gathered = self._processor.gathered, []
        try:
            answers = self._handler.end_turn(gathered)
        except Exception:
            log.exception("closed %d connections after an error", len(gathered))
            answers = [(conn, [CLOSE]) for conn, _ in gathered]
        for conn, replies in answers:
            if not conn.closed:
                try:
                    self._take(conn, replies)
                    self._continue(conn)
                except Exception as error:
                    self._failed(conn, error)

    def _failed(self, conn: Connection, error: Exception) -> None:
        """Log `error` and close the connection. Called in the `except` block of `error`."""
        match error:
            case PeerClosed():
                pass
            case BadFrameSize(size=size):
                reason = f"it sent {error}"
                if size >> 8 in _TLS_HANDSHAKES and conn.transport is None:
                    reason = "the peer speaks TLS, but this listener is plain text"
                if conn.login is not None:
                    conn.login.fail(reason)
                else:
                    left_out = self._processor.lines.admit(conn.peer[0])
                    if left_out is not None:
                        log.warning("closed a connection: %s%s", reason, left_out, extra=conn.who)
            case RegionEnded():
                log.error("closed a connection in the middle of a reply: %s", error, extra=conn.who)
            case OSError(errno=errno.ENOMEM):
                log.error("closed a connection: there is no memory to serve it: %s", error, extra=conn.who)
            case OSError():
                log.debug("lost a connection: %s", error, extra=conn.who)
            case _:
                log.exception("closed a connection after an error", extra=conn.who)
        self._close(conn)

    def complete(self, conn: Connection, pending: Pending) -> None:
        """Send the reply of a completed Pending.

        Does nothing if the connection was closed before. If the reply cannot be made or is invalid, the connection is
        closed.
        """
        # `make` and `on_cancel` usually refer to the Pending. These reference cycles would be left to the garbage
        # collector, and a collection with the cycles of thousands of replies takes a tenth of a second.
        make, pending.make = pending.make, None
        pending.on_cancel = None
        if conn.pending is not pending:
            return  # the connection was closed before
        conn.pending = None
        try:
            reply = make() if make is not None else pending.reply
            if isinstance(reply, Pending) or reply is None:
                raise TypeError(f"a pending request was completed with {reply!r}")
            if conn.kept is not None:
                self._receiver.release_kept(conn, reuse=reply is not CLOSE)
            self.answer(conn, reply)
        except Exception:
            log.exception("closed a connection: its pending request failed", extra=conn.who)
            self._close(conn)
            return
        if conn.parked or conn.patient or self._processor.draining:
            self._processor.queue(conn)
            return
        conn.last_active = self._processor.now
        try:
            self._continue(conn)
        except Exception as error:
            self._failed(conn, error)

    def frame_unused(self, conn: Connection, pending: Pending) -> None:
        """Release the receive buffer that a pending request has kept, before the reply is ready."""
        if conn.pending is pending:
            self._receiver.release_kept(conn, reuse=True)

    def granted(self, conn: Connection, size: int) -> None:
        """Go on with a connection that has waited for memory for a large request. `size` bytes were reserved for it."""
        try:
            self._receiver.granted(conn, size)
        except Exception as error:
            self._failed(conn, error)
        if not conn.closed:
            self._processor.queue(conn)

    def _handle(self, conn: Connection, frames: list[memoryview]) -> None:
        try:
            replies = conn.handler.handle(conn, frames)
            if replies is GATHERED:
                count = len(frames)
            else:
                assert not isinstance(replies, Word)
                count = len(replies)
                if count and isinstance(replies[-1], Pending):
                    count += replies[-1].covers - 1
                self._take(conn, replies)
                if not 0 < count <= len(frames):
                    raise TypeError(f"a handler answered {count} of {len(frames)} frames")
        except Exception:  # also an OSError, which is not the socket's here
            self._receiver.leave(conn)
            log.exception("closed a connection after an error", extra=conn.who)
            self._close(conn)
            return
        self.frames_in += count
        self._receiver.handled(conn, frames, count, conn.pending, may_reserve=replies is not GATHERED)
        if replies is not GATHERED:
            self._continue(conn)

    def _take(self, conn: Connection, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if conn.closing or conn.pending is not None:
                raise TypeError(f"a handler's reply {reply!r} comes after one that must be the last")
            self.answer(conn, reply)

    def _continue(self, conn: Connection) -> None:
        """Send the outbox. Then close the connection if that is due, or queue it if there may be more to receive."""
        if conn.outbox.parts and not self._send(conn) and (conn.parked or not conn.outgoing):
            return
        if conn.closing:
            self._close(conn)
        elif conn.pending is not None:
            if conn.gone:
                self._close_if_dead(conn)
        elif conn.readable or conn.carries_frames:
            self._processor.queue(conn)

    def answer(self, conn: Connection, reply: Reply) -> None:
        """Take one reply of the handler: add it to the outbox, or remember that it is a Pending, CLOSE or Last.

        Raises TypeError for an object that is not a reply.
        """
        if type(reply) is list:
            self._add(conn, reply)
        elif type(reply) is Timed:
            self._add(conn, reply.parts)
            conn.outbox.mark(reply.on_sent)
        elif isinstance(reply, Pending):
            conn.pending = reply
        elif reply is CLOSE:
            conn.closing = True
        elif type(reply) is Last:
            conn.outbox.add(reply.parts)
            conn.closing = True
        elif reply is not NO_REPLY:
            raise TypeError(f"a handler returned {reply!r}, which is not a reply")

    @staticmethod
    def _add(conn: Connection, parts: Send) -> None:
        box = conn.outbox
        if box.ahead is not None:
            box.ahead.note(parts, alone=not box.parts)
        box.add(parts)

    def _send(self, conn: Connection) -> bool:
        """Send the outbox, and return True if everything was sent.

        After False, the connection is served again when the socket has room, when a read from disk or the next piece of
        a reply is ready, or after the other connections.
        """
        state = conn.sender.flush(conn.fd, conn.outbox)
        if state == COLD:
            self._park(conn)
        if conn.outbox.ahead is not None and not conn.outbox.ahead.resume(conn.outbox):
            self.forget_reader(conn)
        if state == DONE:
            return True
        if state == LATER:
            self._processor.queue(conn)
        elif state == UNMADE:
            self._make_piece(conn)
        else:
            assert state in (BLOCKED, COLD)  # an epoll event or `_unpark` queues the connection again
        return False

    def _park(self, conn: Connection) -> None:
        assert conn.sender.cold is not None
        handle, position, length = conn.sender.cold
        conn.sender.cold = None
        conn.parked = True
        box = conn.outbox
        if box.ahead is None:
            box.ahead = ReadAhead(self._cold, self._pages)
            box.ahead.note(box.parts, alone=False)
        self._cold.count += 1
        box.ahead.demand(handle, position, length, lambda warmed, error: self._unpark(conn, warmed, error))

    def _unpark(self, conn: Connection, warmed: int, error: BaseException | None) -> None:
        conn.parked = False
        if error is not None:
            log.error("closed a connection in the middle of a reply: %s", error, extra=conn.who)
            self._close(conn)
            return
        # The next send does not check the page cache for these bytes. If the pages were evicted already, a check would
        # lead to another read, and so on, perhaps for ever.
        conn.outbox.warmed = conn.outbox.offset + max(warmed, 1)
        self._processor.queue(conn)

    def forget_reader(self, conn: Connection) -> None:
        """End the read-ahead from disk for the connection, if there is any."""
        ahead, conn.outbox.ahead = conn.outbox.ahead, None
        if ahead is not None:
            ahead.drop()

    def _make_piece(self, conn: Connection) -> None:
        part, conn.sender.unmade = conn.sender.unmade, None
        assert part is not None
        conn.parked = True
        offset = conn.outbox.offset
        self._maker.make(
            part, offset, lambda piece, error: self._processor.post(self._piece_made, conn, part, piece, error)
        )

    def _piece_made(
        self, conn: Connection, part: Pieces, piece: bytes | memoryview, error: BaseException | None
    ) -> None:
        if conn.closed:
            return
        conn.parked = False
        if piece:
            part.put(piece)
            self._processor.queue(conn)
        else:
            why = error if error is not None else "its next piece is empty"
            log.error("closed a connection in the middle of a reply: %s", why, extra=conn.who, exc_info=error)
            self._close(conn)

    def _receive_ahead(self, conn: Connection) -> None:
        """Receive the next response on a connection that this process opened, which is handled when `conn.pending` is
        complete.
        """
        if conn.readable and self._receiver.receive_ahead(conn):
            self._processor.queue(conn)

    def _close_if_dead(self, conn: Connection) -> None:
        """Close a connection with a pending reply whose peer is gone, if it is broken or all that came was received.

        If the peer sent more requests before it closed its side (produce requests with acks=0 after a fetch), those
        requests must still be handled. Then the connection stays until the pending request completes, which takes
        bounded time.
        """
        if conn.broken or (not conn.carries_frames and not self._receiver.is_more(conn)):
            self._close(conn)

    def _close(self, conn: Connection) -> None:
        self._processor.close(conn)
