"""What a handler answers to a frame, and the handler's own contract.

A reply is one of
  a send              list of buffers (of bytes), FileRegions and Pieces: whole frames with their sizes. The list
                      is the network's from then on; none of it may be a view of the request's frame, which is gone
                      after the call
  Timed(send, done)   the same, and `done()` is called when its last byte was given to the kernel
  NO_REPLY            nothing is sent (acks=0)
  CLOSE               what precedes is sent, then the connection is closed
  Pending             the reply comes later, by `complete`; nothing more is read from the connection until then

Instead of replies a handler may answer GATHERED, for all frames that it was given: it has put them in the processor's
`gathered`, and their replies come from `end_turn`, when the other connections of this turn have been read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kafkapy.network.pieces import Pieces
from kafkapy.record.file_region import FileRegion

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection

Part: TypeAlias = bytes | bytearray | memoryview | FileRegion | Pieces
Send: TypeAlias = list[Part]


class Word:
    """A reply without content, compared by identity."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


NO_REPLY: Final = Word("NO_REPLY")
CLOSE: Final = Word("CLOSE")
GATHERED: Final = Word("GATHERED")


class Timed:
    """A send whose end is wanted to be known. `on_sent` runs on the processor; it is not called if the peer dies."""

    __slots__ = ("on_sent", "parts")

    def __init__(self, parts: Send, on_sent: Callable[[], object]) -> None:
        self.parts = parts
        self.on_sent = on_sent


class Pending:
    """A reply that is still being made.

    If the handler goes on using (views of) the request's frame, it sets `keeps_buffer` before it returns the
    Pending; the memory then stays as it is until `complete`. A small frame is better copied: keeping holds the
    whole receive buffer.

    `cancelled` turns True when the connection died first. `on_cancel`, set before the Pending is returned, is
    called then, once, on the processor, and `complete` changes nothing any more.

    `covers` is the number of frames that the one reply answers: a gathered append that waits answers all its
    requests together.
    """

    __slots__ = ("_claim", "_connection", "cancelled", "covers", "keeps_buffer", "make", "on_cancel", "reply")

    def __init__(self, connection: Connection, on_cancel: Callable[[], object] | None = None) -> None:
        self._connection = connection
        self._claim = threading.Lock()  # taken by the first completion; never given back
        self.covers = 1
        self.keeps_buffer = False
        self.cancelled = False
        self.on_cancel = on_cancel
        self.reply: Reply | None = None
        self.make: Callable[[], Reply] | None = None

    def complete(self, reply: Reply) -> bool:
        """Gives the reply, from any thread; not another Pending. False, and no effect, if there was one before."""
        if not self._claim.acquire(blocking=False):
            return False
        self.reply = reply
        self._connection.processor.post_completion(self._connection, self)
        return True

    def complete_with(self, make: Callable[[], Reply]) -> bool:
        """As `complete`, but the reply is made by `make()` on the connection's processor, where handlers run too.

        For replies that cost something to make: the timer and the disk pool are not held up, and the reply shows
        the state at the time it is sent. An exception in `make` closes the connection.
        """
        if not self._claim.acquire(blocking=False):
            return False
        self.make = make
        self._connection.processor.post_completion(self._connection, self)
        return True


Reply: TypeAlias = Send | Timed | Word | Pending


class Handler(Protocol):
    """What is called with the frames of a connection, on its processor. It must never block."""

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply] | Word:
        """Answers frames in order, one reply each, and at least the first. A Pending or CLOSE is the last reply.

        A frame comes without its size, as a writable view that is good only during the call. Frames without a
        reply come again, after the Pending, or when the replies before them are sent: so a handler may leave frames
        when its replies have become large. An exception closes the connection.
        """
        ...

    def end_turn(self, gathered: Sequence[tuple[Connection, Any]]) -> Sequence[tuple[Connection, Sequence[Reply]]]:
        """The replies to what `handle` has put into its processor's `gathered`, by connection."""
        ...
