"""Decodes the frames of a connection, calls the handlers of their APIs, and measures the time that they take.

A frame that breaks the protocol closes its connection, with a log line that names the peer, the API and the reason. An
exception in a handler is logged with its traceback and also closes the connection, as Kafka's clients expect when there
is no response.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.errors import ProtocolError
from kafkapy.network.pieces import Pieces
from kafkapy.network.replies import CLOSE, GATHERED, Pending, Reply, Timed, Word
from kafkapy.protocol.headers import UnsupportedApi, read_request_header
from kafkapy.record.file_region import FileRegion
from kafkapy.runtime import collector
from kafkapy.server import handlers
from kafkapy.server.api_table import TABLE, Served
from kafkapy.server.call import Call, Later, as_reply
from kafkapy.server.checks import NoCheck, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkapy.network.connection import Connection
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.dispatcher")

__all__ = ["Dispatcher", "handlers"]

# When a connection's responses in memory have this many bytes, its next frames wait until they are sent. Otherwise a
# client could send requests of twenty bytes for the list of all topics, again and again, without reading the responses.
MAX_ANSWERED = 1 << 20
DECODED_LATE = 16 << 10  # from this size on, requests of an API that is registered so are decoded by the pool
MOST_ASKED = 1000  # most actions for which a network thread asks the authorizer; with more, a pool does
SMALL = 4 << 10  # most bytes of a connection's frames that may be joined with those of other connections


class Undecoded(NamedTuple):
    """Stands for a request that is not decoded yet: the frame, and the position where the request begins in it."""

    frame: bytes
    body: int


class Dispatcher:
    """Handles the requests that the network receives; implements `kafkapy.network.replies.Handler`. `api_table`
    describes the options of an API."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._meters = broker.meters
        self._slow = broker.meters.slow

    def handle(self, connection: Connection, frames: list[memoryview]) -> list[Reply] | Word:
        """Return one reply per frame, in order. Stop early after a reply that closes the connection or is pending,
        after a request that exceeds a quota, or when the responses reach MAX_ANSWERED bytes.

        Return GATHERED if all frames are requests that are joined with those of the other connections that the network
        thread reads in this turn: `end_turn` then handles them.
        """
        authorizer, quotas = self._broker.authorizer, self._broker.quotas
        if authorizer is not None and authorizer.pool is not None:
            return [self._handle_on(authorizer.pool, connection, frames[0])]
        processor = connection.processor
        others = processor.together and sum(map(len, frames)) <= SMALL
        since = self._meters.clock()
        replies: list[Reply] = []
        in_memory = 0
        calls: list[Call] = []  # the calls that will be handled together
        joined: Served | None = None  # the API of these calls
        joins_with: Callable[[Call, Call], bool] | None = None
        left = iter(frames)
        for frame in left:
            served = TABLE.find(frame[0] << 8 | frame[1]) if len(frame) >= 2 else None
            if calls and (served is not joined or joins_with is None):
                # Done before this frame is decoded: if the reply is pending, the network passes the frame again later.
                if not self._handle_joined(calls, replies, since):
                    return replies
                calls = []
            try:
                call = decode(connection, served, frame, others)
            except ProtocolError as error:
                if not calls or self._handle_joined(calls, replies, since):
                    _log_refused(connection, _explained(error, frame))
                    replies.append(CLOSE)
                return replies
            if calls and joins_with is not None and not joins_with(calls[0], call):
                # If the reply is pending, this frame is passed and decoded again later, which only costs time.
                if not self._handle_joined(calls, replies, since):
                    return replies
                calls = []
            # Not earlier: a frame that is not handled now is passed again, and would be counted and authorized twice.
            if quotas is not None and quotas.begin(call, len(frame), since):
                # Skip the other frames: like Kafka, handle one request after the other. The frames are passed again,
                # after the mute if this request is throttled.
                deque(left, 0)
            if authorizer is not None and call.served.is_asked_for and not self._authorize(call):
                if not calls or self._handle_joined(calls, replies, since):
                    replies.append(self._authorize_on(self._broker.disk_pool, call, since))
                return replies
            joins = call.served.joins
            if joins is not None:
                if not calls:
                    joined, joins_with = served, joins.same_connection
                calls.append(call)
                continue
            reply = self._handle(call, since)
            replies.append(reply)
            if reply is CLOSE or isinstance(reply, Pending) or (quotas is not None and connection.muted_until):
                return replies
            in_memory += _bytes_in_memory(reply)
            if in_memory >= MAX_ANSWERED:
                return replies
        if calls:
            if others and len(calls) == len(frames) and joins is not None and joins.other_connections(calls):
                processor.gathered.append((connection, calls))
                return GATHERED
            self._handle_joined(calls, replies, since)
        return replies

    def _authorize(self, call: Call) -> bool:
        """Set the denied actions of the call. Return False, and do nothing, if there are so many actions that a pool
        has to ask the authorizer."""
        authorizer, served = self._broker.authorizer, call.served
        if authorizer is not None and served.authorizes is not None:
            actions = served.authorizes(self._broker, call)
            if len(actions) > MOST_ASKED:
                return False
            call.denied = ask(authorizer, call, actions)
        return True

    def _handle_on(self, pool: DiskPool, connection: Connection, frame: memoryview) -> Reply:
        """Authorize and handle a request on a pool, because the authorizer may block. Handle a request that needs no
        right as usual."""
        since = self._meters.clock()
        served = TABLE.find(frame[0] << 8 | frame[1]) if len(frame) >= 2 else None
        try:
            # The request may have views of the frame, whose memory is used again when this method has returned.
            call = decode(connection, served, memoryview(bytearray(frame)), False)
        except ProtocolError as error:
            _log_refused(connection, error)
            return CLOSE
        if self._broker.quotas is not None:
            self._broker.quotas.begin(call, len(frame), since)
        if isinstance(call.served.checks, NoCheck):
            return self._handle(call, since)
        return self._authorize_on(pool, call, since)

    def _authorize_on(self, pool: DiskPool, call: Call, since: float) -> Reply:
        """Authorize and handle a request on a pool. The request must have no views of its frame."""
        started = self._meters.clock()
        call.pending = Pending(call.connection)
        try:
            pool.submit(_authorize_and_answer, self._broker, call, call.pending)
        except Exception:
            log.exception("%s failed", call)
            return CLOSE
        return self._meters.handled(call.served.api.name, 1, since, started, call.pending)

    def end_turn(self, gathered: Sequence[tuple[Connection, list[Call]]]) -> list[tuple[Connection, list[Reply]]]:
        """Handle the calls that `handle` has gathered from several connections, one handler call per API. Return the
        replies to each connection."""
        by_api: dict[Any, list[list[Call]]] = {}
        for _, calls in gathered:
            by_api.setdefault(calls[0].served, []).append(calls)
        since = self._meters.clock()
        replies: list[tuple[Connection, list[Reply]]] = []
        for lists in by_api.values():
            for calls, answers in zip(lists, self._handle_lists(lists, sum(map(len, lists)), since), strict=True):
                replies.append((calls[0].connection, answers))
        return replies

    def _handle_joined(self, calls: list[Call], replies: list[Reply], since: float) -> bool:
        """Handle joined calls of one connection, and append their replies to `replies`. Return False if the frames
        after them must wait, because the last reply is pending or closes the connection, or because the connection is
        throttled."""
        replies += self._handle_lists([calls], len(calls), since)[0]
        return replies[-1] is not CLOSE and not isinstance(replies[-1], Pending) and not calls[0].connection.muted_until

    def _handle_lists(self, lists: list[list[Call]], count: int, since: float) -> list[list[Reply]]:
        served = lists[0][0].served
        started = self._meters.clock()
        quotas = self._broker.quotas
        timed = quotas is not None and quotas.count_time
        if timed:
            _begin(lists, count)
        answers: list[list[Reply]]
        try:
            answers = served.handler(self._broker, lists)
        except Exception:
            log.exception("the requests of %d connections failed, the first is %s", len(lists), lists[0][0])
            answers = [[CLOSE] for _ in lists]
        if timed:
            _end(lists)
        self._meters.count(served.api.name, count)
        if self._meters.timed:
            for calls, replies in zip(lists, answers, strict=True):
                replies[-1] = self._meters.time(served.api.name, len(calls), since, started, replies[-1])
        slow = self._slow
        if slow is not None:
            is_slow = slow.is_slow(started)
            for calls, replies in zip(lists, answers, strict=True):
                if is_slow or isinstance(replies[-1], Pending):
                    slow.watch(calls, started, replies[-1])
        return answers

    def _handle(self, call: Call, since: float) -> Reply:
        started = self._meters.clock()
        served = call.served
        usage = call.usage if call.usage is not None and call.usage.quotas.count_time else None
        reply: Reply
        try:
            if usage is not None:
                usage.begin()
            if not served.pooled:
                reply = as_reply(call, _answer(self._broker, call))
                if usage is not None:
                    usage.end()
            else:
                later = Later(call)
                # Decoded strings and numbers are copies, so the receive buffer can be reused while the pool works.
                pool = self._broker.disk_pool if served.pooled is True else served.pooled(self._broker, call.request)
                pool.submit(_answer_later, self._broker, call, later)
                reply = later.pending
        except Exception:
            log.exception("%s failed", call)
            reply = CLOSE
        reply = self._meters.handled(served.api.name, 1, since, started, reply)
        slow = self._slow
        if slow is not None and (isinstance(reply, Pending) or slow.is_slow(started)):
            slow.watch((call,), started, reply)
        return reply


def decode(connection: Connection, served: Served | None, frame: memoryview, others: bool) -> Call:
    """Decode the header and the request of a frame, and return the call. Raise ProtocolError, which names the API and
    the version.

    served: the frame's API, None if the broker does not serve it.
    others: the call may be joined with calls of other connections. Their frames are received into the same buffer, so
    the request's views must refer to a copy of this frame.
    """
    if served is not None and served.decode is not None:
        request = served.decode(bytearray(frame) if others and served.joins is not None else frame)
        if request is not None:
            return Call(served, request.api_version, request.correlation_id, request.client_id, connection, request)
    try:
        header, body = read_request_header(frame)
    except UnsupportedApi as error:
        if served is None or not served.any_version:
            raise
        return Call(served, 0, error.correlation_id, "", connection, None)
    if served is None:
        raise ProtocolError(f"API {header.api_key} v{header.api_version}: this broker does not serve it")
    if not served.low <= header.api_version <= served.high:
        raise ProtocolError(
            f"{served.api.name} v{header.api_version}: this broker serves v{served.low} to v{served.high}"
        )
    if served.decoded_late and len(frame) >= DECODED_LATE:
        request = Undecoded(bytes(frame), body)
    else:
        request = served.api.decode_request(frame, header.api_version, body)
    return Call(served, header.api_version, header.correlation_id, header.client_id, connection, request)


def _explained(error: ProtocolError, frame: memoryview) -> str:
    """Return the text of the error. If the frame can only be a request of Kafka 0.7, say that instead."""
    from kafkapy.server.kafka07.requests import name_of_request_07

    name = name_of_request_07(frame)
    if name is None:
        return str(error)
    return f"{name} is a request of Kafka 0.7, whose clients need the listener of kafkapy.kafka07.properties"


def _begin(lists: Sequence[Sequence[Call]], count: int) -> None:
    """Measure the time of calls that are handled together."""
    for calls in lists:
        for call in calls:
            if call.usage is not None:
                call.usage.begin(count)


def _end(lists: Sequence[Sequence[Call]]) -> None:
    for calls in lists:
        for call in calls:
            if call.usage is not None:
                call.usage.end()


def _answer(broker: Services, call: Call) -> Any:
    call.meters = broker.meters  # before the handler runs: another thread may send the response before it returns
    return call.served.handler(broker, call, call.request)


def _answer_later(broker: Services, call: Call, later: Later) -> None:
    is_large = isinstance(call.request, Undecoded)
    try:
        if call.usage is not None:
            call.usage.begin()
        with collector.paused() if is_large else nullcontext():
            _decode_late(call)
            later.complete(_answer(broker, call))
    except ProtocolError as error:
        _log_refused(call.connection, error)
        later.complete(CLOSE)
    except Exception:
        log.exception("%s failed", call)
        later.complete(CLOSE)


def _decode_late(call: Call) -> None:
    """Decode the request of a call, unless it is decoded already, or will be refused without being decoded."""
    if isinstance(call.request, Undecoded) and not (call.denied and call.served.refused_undecoded):
        frame, body = call.request
        call.request = call.served.api.decode_request(frame, call.version, body)


def _authorize_and_answer(broker: Services, call: Call, pending: Pending) -> None:
    """Ask an authorizer that may block, on its pool, and handle the request there, or on the pool of its API."""
    try:
        served, authorizer = call.served, broker.authorizer
        if authorizer is not None and served.authorizes is not None:
            call.denied = ask(authorizer, call, served.authorizes(broker, call))
        _decode_late(call)
        if served.pooled:
            pool = broker.disk_pool if served.pooled is True else served.pooled(broker, call.request)
            pool.submit(_answer_pending, broker, call, pending)
        else:
            _answer_pending(broker, call, pending)
    except ProtocolError as error:
        _log_refused(call.connection, error)
        pending.complete(CLOSE)
    except Exception:
        log.exception("%s failed", call)
        pending.complete(CLOSE)


def _answer_pending(broker: Services, call: Call, pending: Pending) -> None:
    """Handle a request on a pool, and complete `pending`. A handler that answers later completes the same Pending."""
    reply: Reply = CLOSE
    try:
        if call.usage is not None:
            call.usage.begin()
        if call.served.joins is not None:
            ((reply,),) = call.served.handler(broker, [[call]])
        else:
            reply = as_reply(call, _answer(broker, call))
        if call.usage is not None:
            call.usage.end()  # the time for which a request waits does not count
    except ProtocolError as error:
        _log_refused(call.connection, error)
    except Exception:
        log.exception("%s failed", call)
    if reply is not pending:
        pending.complete(reply)


def _log_refused(connection: Connection, why: object) -> None:
    """Log that a connection is closed because of what its client has sent, unless there are too many such lines."""
    left_out = connection.processor.lines.admit(connection.peer[0])
    if left_out is not None:
        log.warning("closing the connection of %s: %s%s", connection.name, why, left_out)


def _bytes_in_memory(reply: Reply) -> int:
    parts = reply.parts if isinstance(reply, Timed) else reply
    if not isinstance(parts, list):
        return 0
    return sum(len(part) for part in parts if type(part) is not FileRegion and type(part) is not Pieces)
