"""One request on its way through the broker, and the ways to answer it: now, or later from another thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kafkapy.network.replies import CLOSE, NO_REPLY, Pending, Reply
from kafkapy.protocol.headers import response_frame
from kafkapy.protocol.message import Message

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.admission import Action, Quotas
    from kafkapy.server.api_table import Served
    from kafkapy.server.metrics.requests import RequestMeters
    from kafkapy.server.quotas.client_quotas import Client, Mutations

# Starts the work on a request; its argument is the callback for the response.
Begin = Callable[[Callable[[Any], None]], object]

log = logging.getLogger("kafkapy.server.call")


class Call:
    """One decoded request, with its connection and the fields of its header.

    `denied` has the actions that the principal is not allowed to do, out of those that the API's registration lists for
    the request. The handler must answer the denied resources with an error. `usage` is None if nothing is to be counted
    for quotas. `meters` counts the error codes of the response message. It is set before the handler is called or by
    the handler. It is not set for a first login, nor for Produce, which counts its errors itself.
    `throttle_time_ms` goes into the response. A handler that encodes its response itself must have the request counted
    before, by a method of `usage.quotas`, and must include the throttle time.
    """

    __slots__ = (
        "client_id",
        "connection",
        "correlation_id",
        "denied",
        "meters",
        "pending",
        "request",
        "served",
        "throttle_time_ms",
        "usage",
        "version",
    )
    meters: RequestMeters  # no default, which would cost time for each Produce request

    def __init__(
        self,
        served: Served,
        version: int,
        correlation_id: int,
        client_id: str,
        connection: Connection,
        request: Any,
    ) -> None:
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.request = request
        self.denied: Collection[Action] = ()
        self.throttle_time_ms = 0
        self.pending: Pending | None = None  # the network has this reply already, if the handler runs on a pool
        self.usage: Usage | None = None

    def is_denied(self, resource_type: str) -> bool:
        """Return True if any of the denied actions is on a resource of this type."""
        return any(action.resource_type == resource_type for action in self.denied)

    def denied_names(self, resource_type: str) -> Collection[str]:
        """Return the names of the resources of this type in the denied actions."""
        return {action.name for action in self.denied if action.resource_type == resource_type} if self.denied else ()

    def __str__(self) -> str:
        host, port = self.connection.peer[:2]
        return f"{self.served.api.name} v{self.version} #{self.correlation_id} of {self.client_id!r} at {host}:{port}"


class Usage:
    """What a request has used so far that counts for quotas: the bytes of its frame, and the time of its handler.

    `client` has the client's quotas. `joined` is the number of requests that the handler handles together;
    each counts its share of the time.
    """

    __slots__ = ("_began", "_seconds", "client", "joined", "mutations", "quotas", "size")

    def __init__(self, quotas: Quotas, client: Client, size: int) -> None:
        self.quotas = quotas
        self.client = client
        self.size = size
        self.joined = 1
        self.mutations: Mutations | None = None
        self._began: float | None = None
        self._seconds: float | None = None

    def begin(self, joined: int = 1) -> None:
        """Measure the handler's time from now on."""
        self.joined = joined
        self._began = time.perf_counter()

    def end(self) -> None:
        """End the measurement, if the response is not made yet."""
        if self._began is not None:
            self._seconds = time.perf_counter() - self._began

    def seconds(self) -> float:
        """Return the time that the handler has taken for the request, 0 if it was not measured."""
        if self._began is None:
            return 0.0
        taken = self._seconds if self._seconds is not None else time.perf_counter() - self._began
        return taken / self.joined


class Later:
    """A handler's result if the response is sent later. Call `complete` or `complete_with` once, from any thread."""

    __slots__ = ("_call", "pending")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.pending = call.pending or Pending(call.connection)

    @property
    def cancelled(self) -> bool:
        """Return True if the connection is closed, so that the response is no longer needed."""
        return self.pending.cancelled

    def complete(self, answer: Any) -> None:
        """Send the response: a response message of the call's API, or a reply for the network (a list of buffers, or
        CLOSE).

        If the message cannot be encoded, close the connection: otherwise the client would wait until its time-out.
        """
        try:
            reply = as_reply(self._call, answer)
        except Exception:
            log.exception("the response to %s cannot be encoded", self._call)
            reply = CLOSE
        self.pending.complete(reply)

    def complete_with(self, make: Callable[[], Reply]) -> None:
        """Send the reply that `make` returns. The network thread calls `make` just before it sends the reply."""
        self.pending.complete_with(make)


def as_reply(call: Call, answer: Any) -> Reply:
    """Return the result of a call's handler as a reply for the network. A response message is encoded, and its error
    codes are counted. A Later becomes its Pending. A list of buffers, CLOSE and NO_REPLY are returned unchanged."""
    if isinstance(answer, Later):
        return answer.pending
    if isinstance(answer, list) or answer is CLOSE or answer is NO_REPLY:
        return answer
    if call.usage is not None:
        call.usage.quotas.respond(call, call.usage)
        if call.throttle_time_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = call.throttle_time_ms
    meters = getattr(call, "meters", None)
    if meters is not None and isinstance(answer, Message):
        meters.answered(call.served.api.name, answer)
    return [response_frame(call.served.api, call.version, call.correlation_id, answer)]


def answered(call: Call, begin: Begin, pool: DiskPool | None = None) -> Any:
    """Start the work on a request by calling `begin(reply)`, and return the response, or a Later if the response comes
    later.

    `begin` must call `reply(message)` once, before it returns or later, from any thread. If `reply` is called before
    `begin` returns, the message is returned directly, which avoids the network's queue. `begin` runs on `pool` if one
    is given: pass a pool if `begin` takes too long for a network thread.
    """
    soon = Soon(call)
    if pool is None:
        begin(soon.reply)
    else:
        pool.submit(_begin_in_pool, call, begin, soon.reply)
    return soon.leave()


def _begin_in_pool(call: Call, begin: Begin, reply: Callable[[Any], None]) -> None:
    try:
        begin(reply)
    except Exception:  # nothing else would answer this request
        log.exception("%s failed", call)
        reply(CLOSE)


class Soon:
    """Passes the response of a call from the thread that makes the response to the handler that returns it.

    That thread calls `reply`, and the handler calls `leave`, possibly at the same time; a lock decides which comes
    first. If `reply` is first, it stores the message, and `leave` returns the message. If `leave` is first, it returns
    a Later, and `reply` completes the Later.
    """

    __slots__ = ("_call", "_later", "_lock", "_message")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._message: Any = None
        self._later: Later | None = None

    def reply(self, message: Any) -> None:
        """Store the response message for `leave`, or send it if the handler has called `leave` already. Called once,
        from any thread."""
        with self._lock:
            later = self._later
            if later is None:
                self._message = message
                return
        # The response is encoded on the network thread, so that a thread that answers many requests at a time is not
        # delayed. The lambda must not refer to `self`: `self`, `later` and the lambda would form a reference cycle,
        # which only the garbage collector frees.
        call = self._call
        later.complete_with(lambda: as_reply(call, message))

    def leave(self) -> Any:
        """Return the response message if `reply` was called before, otherwise a Later that `reply` will complete.
        Called once, by the handler."""
        with self._lock:
            if self._message is not None:
                return self._message
            self._later = later = Later(self._call)
            return later
