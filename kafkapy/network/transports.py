"""Transports, for connections whose bytes are encoded on the wire, such as those of a TLS listener.

A plain connection has no transport: the processor's Receiver and Sender call recv, sendmsg and sendfile on its socket.
A connection with a Transport is served by the same loop. The Receiver receives decoded bytes through
`Transport.recv_into`, and a TransportSender passes every byte of a reply to `Transport.send`. Nothing else calls recv
or send on such a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkapy.network.pieces import Pieces
from kafkapy.network.sends import BLOCKED, COLD, DONE, LATER, TURN, UNMADE, Outbox, Sender

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.record.file_region import FileHandle

_COPY_ALL = float("inf")


class Transport(Protocol):
    """Encodes and decodes the bytes of one connection. A Prepare function creates the transport of each new connection.

    The connection's processor calls these methods; none of them may block. A transport does slow work, such as a
    handshake, on a pool thread. Meanwhile `recv_into` and `send` return -1. When the work is done, the pool thread
    calls `Processor.post_ready`, and the processor calls `recv_into` or `send` again. An exception closes the
    connection; an OSError is logged without a traceback.

    A transport may set `Connection.principal`, and sets `Connection.gone` when the peer has said that it sends no more.
    """

    @property
    def wants_write(self) -> bool:
        """Return whether there are encoded bytes that the socket has not taken.

        When the socket has room, the processor calls `write` if a reply is being sent, otherwise `recv_into`. While a
        request is pending or the connection is muted, the processor calls neither until the reply or the end of the
        mute.
        """
        ...

    def recv_into(self, fd: int, buffer: memoryview, start: int, end: int) -> int:
        """Receive decoded bytes into buffer[start:end], and return their number.

        Return 0 at the end of the stream, and -1 if there are no bytes now. Before receiving, send the encoded bytes
        that the socket has not taken yet, and continue the handshake. On an outgoing connection, receive even if the
        socket does not take those encoded bytes. If fewer bytes are returned than there is room for, either both the
        socket and the transport must be empty, or `wants_write` must be True: the next call comes after an epoll event,
        a write, or `post_ready`. If the end of the stream follows the returned bytes, set `Connection.gone`.
        """
        ...

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Encode the first bytes of `buffers` and send them. Return the number of bytes of `buffers` that were encoded.

        Return -1 if the handshake is not finished. Encoded bytes that the socket does not take are kept, and
        `wants_write` becomes True; `send` is called again only when they are sent. So a transport encodes a limited
        number of bytes at a time. The buffers are valid only during the call.
        """
        ...

    def write(self) -> bool:
        """Send the encoded bytes that the socket has not taken yet. Return True if the socket has taken all of them."""
        ...

    def is_more(self) -> bool:
        """Return whether the peer has sent bytes of requests that `recv_into` has not returned yet.

        Called when the peer has closed its side.
        """
        ...

    def close(self, *, can_send: bool) -> None:
        """Send the message that ends the stream, such as TLS's close_notify, if the socket has room.

        Called once, before the socket is closed. Without `can_send` the connection is broken: nothing is sent.
        """
        ...


# Prepares a new connection before its first byte, on its processor: returns its transport, None for a plain connection.
# It may also set `handler` and `largest_frame`, for clients that have to authenticate first. An exception closes the
# connection.
Prepare = Callable[["Connection"], "Transport | None"]


class TransportSender:
    """Sends the outbox (the unsent replies) of one connection through its transport. It is used like a Sender.

    File regions are read into the scratch buffer of `plain`, the processor's Sender, before they are encoded. The bytes
    sent are also counted in `plain`. As in Kafka, these are the bytes of the replies before they are encoded.
    """

    def __init__(self, conn: Connection, transport: Transport, plain: Sender) -> None:
        self._conn = conn
        self._transport = transport
        self._plain = plain
        self.cold: tuple[FileHandle, int, int] | None = None
        self.unmade: Pieces | None = None

    def flush(self, fd: int, box: Outbox) -> int:
        """Send as much of the outbox as the socket takes, and return the result that `Sender.flush` describes.

        BLOCKED is also returned if the handshake is not finished. `fd` is not used.
        """
        transport, turn = self._transport, TURN
        while True:
            if transport.wants_write:
                if not transport.write():
                    return self._blocked(box)
                self._conn.readable = True  # because `recv_into` may have stopped before everything was received
            while box.marks and box.marks[0][0] <= box.index:
                box.marks.pop(0)[1]()
            if box.index == len(box.parts):
                box.clear()
                return DONE
            if turn <= 0:
                return LATER
            part = box.parts[box.index]
            if type(part) is Pieces:
                piece = part.after(box.offset)
                if not piece:
                    self.unmade = part
                    return UNMADE
                sent = transport.send([piece])
                del piece  # so that `Pieces.wait` can free it
            else:
                buffers, _ = self._plain.next_buffers(box, _COPY_ALL)
                if not buffers:
                    self.cold, self._plain.cold = self._plain.cold, None
                    return COLD
                sent = transport.send(buffers)
            if sent < 0:
                return self._blocked(box)
            self._plain.bytes_out += sent
            box.advance(sent)
            turn -= sent

    def _blocked(self, box: Outbox) -> int:
        box.warmed = 0
        part = box.parts[box.index] if box.index < len(box.parts) else None
        if type(part) is Pieces:
            part.wait(box.offset)
        return BLOCKED
