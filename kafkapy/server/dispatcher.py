"""From frames to replies: reads headers, finds the handler, gathers produce requests, measures.

A frame that breaks the protocol closes its connection with one line that names the peer, the API and the
reason; a failure of a handler itself is logged with its traceback and closes the connection too, as Kafka's
clients expect of an answer that cannot be made.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafkapy._ext.hotpath import FetchRequest, ProduceRequest, decode_fetch_frame, decode_produce_frame
from kafkapy.errors import ProtocolError
from kafkapy.network.pieces import Pieces
from kafkapy.network.replies import CLOSE, GATHERED, Pending, Reply, Timed, Word
from kafkapy.protocol.api_versions import unsupported
from kafkapy.protocol.apis import API_VERSIONS, FETCH, OFFSET_COMMIT
from kafkapy.protocol.headers import RequestHeader, UnsupportedApi, read_request_header
from kafkapy.protocol.message import Message
from kafkapy.record.file_region import FileRegion
from kafkapy.server import handlers
from kafkapy.server.api_table import TABLE, Served
from kafkapy.server.call import Call, Later, as_reply
from kafkapy.server.handlers import fetch, offset_commit, produce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.network.connection import Connection
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.dispatcher")

__all__ = ["Dispatcher", "handlers"]

# Bytes of answers in memory after which the other frames of a turn wait until these are sent. A client can ask for a
# list of all topics in twenty bytes, and ask again without reading what it gets.
MAX_ANSWERED = 1 << 20
SMALL = 4 << 10  # bytes of a connection's requests that are copied, to be handled with those of others
_COMMIT = OFFSET_COMMIT.key.to_bytes(2, "big")


class Dispatcher:
    """The network's handler: `handle(connection, frames)` on a processor thread."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._meters = broker.meters

    def handle(self, connection: Connection, frames: list[memoryview]) -> list[Reply] | Word:
        """One reply a frame, in order, up to the first that closes or waits, or until they are large together.

        GATHERED where they are small produce requests or a commit, and other connections have their turn, too: then
        `end_turn` appends those of all of them together.
        """
        if connection.processor.together and self._gathered(connection, frames):
            return GATHERED
        replies: list[Reply] = []
        answered = 0
        run: list[ProduceRequest] = []
        gathered = self._meters.clock()
        for frame in frames:
            try:
                produced = decode_produce_frame(frame)
            except ProtocolError as error:
                if not run or self._produce(connection, run, replies, gathered):
                    replies.append(_refuse(connection, "Produce", error))
                return replies
            if produced is not None:
                if run and (run[0].acks == 0) != (produced.acks == 0):
                    # A failure with acks=0 closes the connection, and must not take the answers of others along.
                    if not self._produce(connection, run, replies, gathered):
                        return replies
                    run = []
                run.append(produced)
                continue
            if run and not self._produce(connection, run, replies, gathered):
                return replies
            run = []
            reply = self._one(connection, frame, gathered)
            replies.append(reply)
            if reply is CLOSE or isinstance(reply, Pending):
                return replies
            answered += _bytes_in_memory(reply)
            if answered >= MAX_ANSWERED:
                return replies
        if run:
            self._produce(connection, run, replies, gathered)
        return replies

    def _gathered(self, connection: Connection, frames: list[memoryview]) -> bool:
        if sum(map(len, frames)) > SMALL:
            return False
        try:
            work = _produced_in(frames) or self._commit_in(connection, frames)
        except ProtocolError:
            return False  # what is said of it, and when, is the business of the ordinary way
        if work is None:
            return False
        connection.processor.gathered.append((connection, work))
        return True

    def _commit_in(self, connection: Connection, frames: list[memoryview]) -> tuple[Call, Any] | None:
        """The one commit that they are, if they are."""
        frame = frames[0]
        if len(frames) > 1 or frame[:2] != _COMMIT:
            return None
        header, body = read_request_header(frame)
        if not offset_commit.may_wait(header.api_version):
            return None
        request = OFFSET_COMMIT.decode_request(frame, header.api_version, body)
        call = Call(OFFSET_COMMIT, header.api_version, header.correlation_id, header.client_id, connection)
        return call, request

    def end_turn(
        self, gathered: Sequence[tuple[Connection, list[ProduceRequest] | tuple[Call, Any]]]
    ) -> list[tuple[Connection, list[Reply]]]:
        """Handles the produce requests of several connections as one, and so their commits."""
        produced = [(connection, work) for connection, work in gathered if isinstance(work, list)]
        committed = [work for _, work in gathered if isinstance(work, tuple)]
        return (self._produce_turn(produced) if produced else []) + (self._commit_turn(committed) if committed else [])

    def _produce_turn(
        self, gathered: Sequence[tuple[Connection, list[ProduceRequest]]]
    ) -> list[tuple[Connection, list[Reply]]]:
        started = self._meters.clock()
        answers = produce.handle_turn(self._broker, gathered)
        self._meters.count("Produce", sum(len(requests) for _, requests in gathered))
        if self._meters.timed:
            for (_, requests), replies in zip(gathered, answers, strict=True):
                replies[-1] = self._meters.time("Produce", len(requests), started, started, replies[-1])
        return [(connection, replies) for (connection, _), replies in zip(gathered, answers, strict=True)]

    def _commit_turn(self, gathered: Sequence[tuple[Call, Any]]) -> list[tuple[Connection, list[Reply]]]:
        started = self._meters.clock()
        try:
            answers = offset_commit.handle_turn(self._broker, gathered)
            replies = [
                as_reply(call, _counted(self._broker, OFFSET_COMMIT.name, answer))
                for (call, _), answer in zip(gathered, answers, strict=True)
            ]
        except Exception:
            log.exception("%d commits failed, the first is %s", len(gathered), gathered[0][0])
            replies = [CLOSE] * len(gathered)
        return [
            (call.connection, [self._meters.handled(OFFSET_COMMIT.name, 1, started, started, reply)])
            for (call, _), reply in zip(gathered, replies, strict=True)
        ]

    def _produce(
        self, connection: Connection, run: list[ProduceRequest], replies: list[Reply], gathered: float
    ) -> bool:
        """Handles gathered produce requests; whether the frames behind them may be handled now."""
        started = self._meters.clock()
        try:
            answers = produce.handle_gather(self._broker, connection, run)
        except Exception:
            log.exception("produce of %r at %s failed", run[0].client_id, connection.peer)
            answers = [CLOSE]
        last = answers[-1]
        answers[-1] = self._meters.handled("Produce", len(run), gathered, started, last)
        replies.extend(answers)
        return last is not CLOSE and not isinstance(last, Pending)

    def _one(self, connection: Connection, frame: memoryview, gathered: float) -> Reply:
        try:
            fetch_request = decode_fetch_frame(frame)
            if fetch_request is not None:
                return self._fetch(connection, fetch_request, gathered)
            header, body = read_request_header(frame)
        except UnsupportedApi as error:
            if error.api_key == API_VERSIONS.key:  # a newer client: it asks again in a version named in the answer
                return [unsupported(error, TABLE.versions())]
            return _refuse(connection, f"API {error.api_key} v{error.api_version}", error)
        except ProtocolError as error:
            return _refuse(connection, "a request header", error)
        served = TABLE.find(header.api_key)
        if served is None or not served.low <= header.api_version <= served.high:
            return self._not_served(connection, header, served)
        api = served.api
        call = Call(api, header.api_version, header.correlation_id, header.client_id, connection)
        try:
            request = api.decode_request(frame, header.api_version, body)
        except ProtocolError as error:
            return _refuse(connection, f"{api.name} v{header.api_version}", error)
        started = self._meters.clock()
        try:
            reply = self._run(served, call, request)
        except Exception:
            log.exception("%s failed", call)
            reply = CLOSE
        return self._meters.handled(api.name, 1, gathered, started, reply)

    def _fetch(self, connection: Connection, request: FetchRequest, gathered: float) -> Reply:
        call = Call(FETCH, request.api_version, request.correlation_id, request.client_id, connection)
        started = self._meters.clock()
        try:
            reply = as_reply(call, fetch.handle(self._broker, call, request))
        except Exception:
            log.exception("%s failed", call)
            reply = CLOSE
        return self._meters.handled("Fetch", 1, gathered, started, reply)

    def _not_served(self, connection: Connection, header: RequestHeader, served: Served | None) -> Reply:
        if served is None:
            return _refuse(connection, f"API {header.api_key}", ProtocolError("this broker does not serve it"))
        return _refuse(
            connection,
            f"{served.api.name} v{header.api_version}",
            ProtocolError(f"this broker serves v{served.low} to v{served.high}"),
        )

    def _run(self, served: Served, call: Call, request: Any) -> Reply:
        if not served.pooled:
            return as_reply(call, _answer(self._broker, served, call, request))
        later = Later(call)
        # Decoded strings and numbers are copies, so the receive buffer may go on while the pool works.
        pool = self._broker.disk_pool if served.pooled is True else served.pooled(self._broker, request)
        pool.submit(_run_pooled, self._broker, served, call, request, later)
        return later.pending


def _produced_in(frames: list[memoryview]) -> list[ProduceRequest] | None:
    """The produce requests that they are, if they are and may wait for those of others."""
    requests = []
    for frame in frames:
        # Copied: the receive buffer is about to be another connection's.
        request = decode_produce_frame(frame, True)
        if request is None:
            return None
        requests.append(request)
    return requests if produce.may_wait(requests) else None


def _answer(broker: Services, served: Served, call: Call, request: Any) -> Any:
    return _counted(broker, served.api.name, served.handler(broker, call, request))


def _counted(broker: Services, api: str, answer: Any) -> Any:
    if isinstance(answer, Message):
        broker.meters.answered(api, answer)
    return answer


def _run_pooled(broker: Services, served: Served, call: Call, request: Any, later: Later) -> None:
    try:
        later.complete(_answer(broker, served, call, request))
    except Exception:
        log.exception("%s failed", call)
        later.complete(CLOSE)


def _bytes_in_memory(reply: Reply) -> int:
    parts = reply.parts if isinstance(reply, Timed) else reply
    if not isinstance(parts, list):
        return 0
    return sum(len(part) for part in parts if type(part) is not FileRegion and type(part) is not Pieces)


def _refuse(connection: Connection, what: str, error: Exception) -> Reply:
    log.warning("closing the connection of %s: %s: %s", connection.name, what, error)
    return CLOSE
