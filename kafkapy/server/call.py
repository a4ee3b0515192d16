"""One request on its way through the broker: who asked, which version, and how an answer that waits gets back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.network.replies import CLOSE, NO_REPLY, Pending, Reply
from kafkapy.protocol.headers import response_frame

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.protocol.apis import Api
    from kafkapy.runtime.disk_pool import DiskPool

# Begins to work on a request; takes what the answer is to be given to.
Begin = Callable[[Callable[[Any], None]], object]

log = logging.getLogger("kafkapy.server.call")


class Call:
    """A decoded request's surroundings: `version` decides the layout, `connection` where the answer goes."""

    __slots__ = ("api", "client_id", "connection", "correlation_id", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, client_id: str | None, connection: Connection
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection

    def __str__(self) -> str:
        host, port = self.connection.peer[:2]
        return f"{self.api.name} v{self.version} #{self.correlation_id} of {self.client_id!r} at {host}:{port}"


class Later:
    """The answer of a handler that cannot answer yet. Complete it once, from any thread."""

    __slots__ = ("_call", "pending")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.pending = MeteredPending(call.connection)

    @property
    def cancelled(self) -> bool:
        """Whether the connection is gone, so that nobody waits for the answer."""
        return self.pending.cancelled

    def complete(self, answer: Any) -> None:
        """Sends a response message of the call's API, or what the network takes as it is (a send list, CLOSE).

        One that cannot be encoded closes the connection, which would else wait for it as long as its client does.
        """
        try:
            reply = as_reply(self._call, answer)
        except Exception:
            log.exception("the answer to %s cannot be made", self._call)
            reply = CLOSE
        self.pending.complete(reply)

    def complete_with(self, make: Callable[[], Reply]) -> None:
        """Has the network thread make the reply when it is about to send it."""
        self.pending.complete_with(make)


class MeteredPending(Pending):
    """A Pending for the meters: it says when it is completed (`on_complete`), and its reply passes through `timed`."""

    __slots__ = ("on_complete", "timed")

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.on_complete: Callable[[], None] | None = None
        self.timed: Callable[[Reply], Reply] | None = None

    def complete(self, reply: Reply) -> bool:
        if self.on_complete is not None:
            self.on_complete()
        if self.timed is not None:
            reply = self.timed(reply)
        return super().complete(reply)

    def complete_with(self, make: Callable[[], Reply]) -> bool:
        if self.on_complete is not None:
            self.on_complete()
        timed = self.timed
        return super().complete_with(make if timed is None else lambda: timed(make()))


def as_reply(call: Call, answer: Any) -> Reply:
    """What a handler returned, as the network takes it: a message is encoded, the rest goes through."""
    if isinstance(answer, Later):
        return answer.pending
    if isinstance(answer, list) or answer is CLOSE or answer is NO_REPLY:
        return answer
    return [response_frame(call.api, call.version, call.correlation_id, answer)]


def answered(call: Call, begin: Begin, pool: DiskPool | None = None) -> Any:
    """The answer of a handler that may be known at once or later: `begin(reply)` calls `reply(message)` once, now or
    from any thread. Answers the message itself where it came before `begin` returned (no detour through the
    network's queue), a Later otherwise. With a pool `begin` runs there: it would hold up the network thread."""
    soon = Soon(call)
    if pool is None:
        begin(soon.reply)
    else:
        pool.submit(_begin_in_pool, call, begin, soon.reply)
    return soon.leave()


def _begin_in_pool(call: Call, begin: Begin, reply: Callable[[Any], None]) -> None:
    try:
        begin(reply)
    except Exception:  # nobody else would answer
        log.exception("%s failed", call)
        reply(CLOSE)


class Soon:
    """Two may meet here: the thread that replies and the handler that returns. Whoever comes second acts."""

    __slots__ = ("_call", "_later", "_lock", "_message")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._message: Any = None
        self._later: Later | None = None

    def reply(self, message: Any) -> None:
        with self._lock:
            later = self._later
            if later is None:
                self._message = message
                return
        # Made where handlers run: whoever gives many answers at a time holds nobody up longer than it must. Without
        # `self` in it: that would be a circle, through `later`, which only a collection ends.
        call = self._call
        later.complete_with(lambda: as_reply(call, message))

    def leave(self) -> Any:
        with self._lock:
            if self._message is not None:
                return self._message
            self._later = later = Later(self._call)
            return later
