"""The replies that a handler returns for frames, and the protocol that a handler implements.

A reply is one of
  a send              a list of buffers (of bytes), FileRegions and Pieces: whole frames with their sizes. The network
                      owns the list afterwards. No part may be a view of the request's frame, whose memory is reused
                      after the call
  Last(send)          the same, and then the connection is closed
  Timed(send, done)   a send, and `done()` is called when the kernel has taken its last byte
  NO_REPLY            nothing is sent (acks=0)
  CLOSE               the replies before it are sent, then the connection is closed. The memory of the frames is not
                      reused: a handler that failed may already have passed them to another thread
  Pending             the reply comes later, by `complete`; no more frames are handled on the connection until then

Instead of replies, a handler may return GATHERED for all frames of the call, after it has put their requests into the
processor's `gathered`. Then `end_turn` returns the replies, after the other connections with requests were read.
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
    """A reply without content: NO_REPLY, CLOSE or GATHERED. Compared by identity."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


NO_REPLY: Final = Word("NO_REPLY")
CLOSE: Final = Word("CLOSE")
GATHERED: Final = Word("GATHERED")


class Timed:
    """A send with a callback: `on_sent` runs on the processor when the last byte was sent.

    The callback does not run if the connection fails before.
    """

    __slots__ = ("on_sent", "parts")

    def __init__(self, parts: Send, on_sent: Callable[[], object]) -> None:
        self.parts = parts
        self.on_sent = on_sent


class Last:
    """A send after which the connection is closed, such as the response to a login that failed."""

    __slots__ = ("parts",)

    def __init__(self, parts: Send) -> None:
        self.parts = parts


class Pending:
    """The placeholder that a handler returns for a reply that comes later, by `complete` or `complete_with`.

    A handler that still uses the request's frame, or views of it, sets `keeps_buffer` before it returns the Pending.
    Then the memory of the frame is not reused before `complete`, and never if the reply is CLOSE. It is better to copy
    a small frame, because keeping it keeps the whole receive buffer.

    If the connection closes before the reply, `cancelled` becomes True and `on_cancel` is called once, on the
    processor. From then on `complete` has no effect. `on_cancel` has to be set before the Pending is returned.

    `covers` is the number of frames that the reply answers: a gathered append that has to wait answers several requests
    with one reply. For metrics: `on_complete` is called when the Pending is completed, and `timed` wraps the reply to
    measure its sending.
    """

    __slots__ = (
        "_claim",
        "_connection",
        "cancelled",
        "covers",
        "keeps_buffer",
        "make",
        "on_cancel",
        "on_complete",
        "reply",
        "timed",
    )

    def __init__(self, connection: Connection, on_cancel: Callable[[], object] | None = None) -> None:
        self._connection = connection
        self._claim = threading.Lock()  # acquired by the first completion, never released
        self.covers = 1
        self.keeps_buffer = False
        self.cancelled = False
        self.on_cancel = on_cancel
        self.on_complete: Callable[[], None] | None = None
        self.timed: Callable[[Reply], Reply] | None = None
        self.reply: Reply | None = None
        self.make: Callable[[], Reply] | None = None

    def give_back_buffer(self) -> None:
        """Release the receive buffer of the request before the reply, because the frame is not read any more.

        May be called from any thread.
        """
        self.keeps_buffer = False  # in case the handler has not returned yet
        self._connection.processor.post_frame_unused(self._connection, self)

    def complete(self, reply: Reply, *, at_once: bool = False) -> bool:
        """Set the reply, which must not be a Pending, and have it sent. Return True.

        Return False, without effect, if the Pending was already completed. May be called from any thread. With
        `at_once`, and on the thread of the connection's processor, the reply is sent before this method returns, unless
        many replies were sent so in this iteration of the loop. With `at_once` the caller must hold no lock, because
        sending may close the connection.
        """
        if not self._claim.acquire(blocking=False):
            return False
        if self.on_complete is not None:
            self.on_complete()
        self.reply = reply if self.timed is None else self.timed(reply)
        if at_once:
            self._connection.processor.complete_now(self._connection, self)
        else:
            self._connection.processor.post_completion(self._connection, self)
        return True

    def complete_with(self, make: Callable[[], Reply]) -> bool:
        """Complete the Pending with the reply that `make()` returns. `make` runs on the connection's processor.

        This is for replies that take time to make: the calling thread, such as the timer's, is not delayed, and the
        reply shows the state at the time when it is sent. The result is that of `complete`. An exception in `make`
        closes the connection. May be called from any thread.
        """
        if not self._claim.acquire(blocking=False):
            return False
        if self.on_complete is not None:
            self.on_complete()
        timed = self.timed
        self.make = make if timed is None else lambda: timed(make())
        self._connection.processor.post_completion(self._connection, self)
        return True


Reply: TypeAlias = Send | Last | Timed | Word | Pending


class Handler(Protocol):
    """The interface of a request handler: handles the frames of connections, on their processors. Must never block."""

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply] | Word:
        """Return a reply for each of the first frames (at least one), in order, or GATHERED for all frames.

        A Pending, CLOSE or Last must be the last reply. A frame comes without its size, as a writable view that is
        valid only during the call. Frames without a reply are passed again, after the Pending is completed or the
        replies are sent. So a handler may stop early when its replies have become large. An exception closes the
        connection, and the replies of this call are not sent.
        """
        ...

    def end_turn(self, gathered: Sequence[tuple[Connection, Any]]) -> Sequence[tuple[Connection, Sequence[Reply]]]:
        """Return, for each connection, the replies to the requests that `handle` has put into `Processor.gathered`."""
        ...
