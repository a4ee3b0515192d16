"""What is done for one connection in its turn: send what is unsent, receive, handle, answer.

In this order, and each only if nothing of the ones before is left: that is all the back-pressure there is. A
connection with an unsent or a pending reply is not read, so its client is stopped by its own socket.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy._ext import syscalls
from kafkapy._ext.frames import BadFrameSize
from kafkapy.network.cold import ColdReads
from kafkapy.network.connection import Connection
from kafkapy.network.pieces import PieceMaker, Pieces
from kafkapy.network.read_ahead import ReadAhead
from kafkapy.network.receive import PeerClosed, Receiver
from kafkapy.network.replies import CLOSE, GATHERED, NO_REPLY, Handler, Pending, Reply, Timed, Word
from kafkapy.network.sends import BLOCKED, COLD, DONE, LATER, UNMADE, RegionEnded, Residency, Sender

if TYPE_CHECKING:
    from kafkapy.network.processor import Processor

log = logging.getLogger(__name__)


class Serving:
    """The turns of one processor's connections. Runs on the processor's thread."""

    def __init__(
        self,
        processor: Processor,
        handler: Handler,
        receiver: Receiver,
        sender: Sender,
        cold: ColdReads,
        maker: PieceMaker,
        pages: Residency,
    ) -> None:
        self._processor = processor
        self._handler = handler
        self._receiver = receiver
        self._sender = sender
        self._cold = cold
        self._maker = maker
        self._pages = pages
        self.frames_in = 0

    def serve(self, conn: Connection) -> None:
        """One turn. Whatever goes wrong ends this connection and no other."""
        try:
            self._serve(conn)
        except Exception as error:
            self._failed(conn, error)

    def answer_gathered(self) -> None:
        """Answers the connections whose requests the handler has gathered in this turn."""
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
                    self._go_on(conn)
                except Exception as error:
                    self._failed(conn, error)

    def _failed(self, conn: Connection, error: Exception) -> None:
        """Called where `error` is handled."""
        match error:
            case PeerClosed():
                pass
            case BadFrameSize():
                log.warning("closed a connection for %s", error, extra=conn.who)
            case RegionEnded():
                log.error("closed a connection in the middle of a reply: %s", error, extra=conn.who)
            case OSError():
                log.debug("lost a connection: %s", error, extra=conn.who)
            case _:
                log.exception("closed a connection after an error", extra=conn.who)
                self._receiver.distrust_shared()
        self._close(conn)

    def complete(self, conn: Connection, pending: Pending) -> None:
        """A pending request has its reply: the connection goes on where it stopped."""
        # What makes the reply knows the pending, as does who wants to hear of a close: circles, which only a collection
        # would end, and one that finds the circles of thousands of answers takes a tenth of a second.
        make, pending.make = pending.make, None
        pending.on_cancel = None
        if conn.pending is not pending:
            return  # the connection was closed before
        conn.pending = None
        self._receiver.release_kept(conn)
        try:
            reply = make() if make is not None else pending.reply
            if isinstance(reply, Pending) or reply is None:
                raise TypeError(f"a pending request was completed with {reply!r}")
            self._answer(conn, reply)
        except Exception:
            log.exception("closed a connection: its pending request failed", extra=conn.who)
            self._close(conn)
            return
        self._processor.queue(conn)

    def _serve(self, conn: Connection) -> None:
        if conn.parked:
            if conn.broken:
                self._close(conn)
            return
        if conn.outbox.parts and not self._send(conn):
            return
        if conn.closing or (self._processor.draining and conn.pending is None):
            self._close(conn)
        elif conn.pending is not None:
            self._close_if_dead(conn)
        elif conn.readable or conn.carries_frames:
            frames = self._receiver.receive(conn)
            if frames:
                self._handle(conn, frames)
            elif conn.readable:
                self._processor.queue(conn)

    def _handle(self, conn: Connection, frames: list[memoryview]) -> None:
        replies = self._handler.handle(conn, frames)
        if isinstance(replies, Word):
            assert replies is GATHERED
            self.frames_in += len(frames)
            self._receiver.handled(conn, frames, len(frames), None)
            return
        count = len(replies)
        if count and isinstance(replies[-1], Pending):
            count += replies[-1].covers - 1
        self.frames_in += count
        self._take(conn, replies)
        if not 0 < count <= len(frames):
            raise TypeError(f"a handler answered {count} of {len(frames)} frames")
        self._receiver.handled(conn, frames, count, conn.pending)
        self._go_on(conn)

    def _take(self, conn: Connection, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if conn.closing or conn.pending is not None:
                raise TypeError(f"a handler's reply {reply!r} comes after one that must be the last")
            self._answer(conn, reply)

    def _go_on(self, conn: Connection) -> None:
        """Sends what there is to send, and sees to it that the connection gets another turn if it needs one."""
        if conn.outbox.parts and not self._send(conn):
            return
        if conn.closing:
            self._close(conn)
        elif conn.pending is not None:
            self._close_if_dead(conn)
        elif conn.readable or conn.carries_frames:
            self._processor.queue(conn)

    def _answer(self, conn: Connection, reply: Reply) -> None:
        if type(reply) is list:
            conn.outbox.add(reply)
            if conn.outbox.ahead is not None:
                conn.outbox.ahead.note(reply)
        elif type(reply) is Timed:
            conn.outbox.add(reply.parts)
            conn.outbox.mark(reply.on_sent)
            if conn.outbox.ahead is not None:
                conn.outbox.ahead.note(reply.parts)
        elif isinstance(reply, Pending):
            conn.pending = reply
        elif reply is CLOSE:
            conn.closing = True
        elif reply is not NO_REPLY:
            raise TypeError(f"a handler gave {reply!r}, which is no reply")

    def _send(self, conn: Connection) -> bool:
        """True when everything is out; otherwise the connection waits for what it needs to go on."""
        state = self._sender.flush(conn.fd, conn.outbox)
        if state == COLD:
            self._park(conn)
        if conn.outbox.ahead is not None and not conn.outbox.ahead.go_on(conn.outbox):
            self.forget_reader(conn)
        if state == DONE:
            return True
        if state == LATER:
            self._processor.queue(conn)
        elif state == UNMADE:
            self._have_made(conn)
        else:
            assert state in (BLOCKED, COLD)  # epoll will tell when there is room, the disk's thread what is there
        return False

    def _park(self, conn: Connection) -> None:
        assert self._sender.cold is not None
        handle, position, length = self._sender.cold
        self._sender.cold = None
        conn.parked = True
        box = conn.outbox
        if box.ahead is None:
            box.ahead = ReadAhead(self._cold, self._pages)
            box.ahead.note(box.parts)
        self._cold.count += 1
        box.ahead.demand(handle, position, length, lambda warmed, error: self._unpark(conn, warmed, error))

    def _unpark(self, conn: Connection, warmed: int, error: BaseException | None) -> None:
        conn.parked = False
        if error is not None:
            log.error("closed a connection in the middle of a reply: %s", error, extra=conn.who)
            self._close(conn)
            return
        # Without asking again: were the pages gone by now, it would go on in a circle.
        conn.outbox.warmed = conn.outbox.offset + max(warmed, 1)
        self._processor.queue(conn)

    def forget_reader(self, conn: Connection) -> None:
        """Nothing is read ahead of it any more."""
        ahead, conn.outbox.ahead = conn.outbox.ahead, None
        if ahead is not None:
            ahead.drop()

    def _have_made(self, conn: Connection) -> None:
        part, self._sender.unmade = self._sender.unmade, None
        assert part is not None
        conn.parked = True
        offset = conn.outbox.offset
        self._maker.make(part, offset, lambda piece, error: self._processor.post(self._made, conn, part, piece, error))

    def _made(self, conn: Connection, part: Pieces, piece: bytes | memoryview, error: BaseException | None) -> None:
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

    def _close_if_dead(self, conn: Connection) -> None:
        """Ends a connection that waits for a pending reply when nobody is there to get it.

        If the peer sent more before it went (fire-and-forget produces behind a fetch), that must still be
        handled: then the pending request is left to finish by itself, which it does in bounded time.
        """
        if conn.broken or (conn.gone and not conn.carries_frames and syscalls.unread(conn.fd) != 1):
            self._close(conn)

    def _close(self, conn: Connection) -> None:
        self._processor.close(conn)
