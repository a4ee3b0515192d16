"""Connections on which this broker sends requests to other brokers.

A Link is one connection, opened with the first request and again after a failure. It is served by a network thread,
like client connections, so no thread waits for a response. Requests are sent in the order of the calls of `ask`,
several at a time; responses come in the same order. On each new connection an ApiVersions request is sent first, and
then the requests of a SASL login, if the listener needs one. Before the session ends, the link logs in again; meanwhile
the requests wait.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkapy.errors import Errors, ProtocolError
from kafkapy.network.replies import CLOSE, NO_REPLY, Pending, Reply
from kafkapy.protocol.apis import API_VERSIONS, SASL_HANDSHAKE, Api, Buffer
from kafkapy.protocol.headers import read_response_header, request_frame, request_frame_of
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.version import VERSION

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.transports import Prepare
    from kafkapy.security.sasl.client import ClientMechanism

log = logging.getLogger("kafkapy.replica.links")

_API_VERSIONS_VERSION = 3
_FIRST_LOGIN_VERSION = {SASL_HANDSHAKE.key: 1}  # version 0 is followed by tokens without requests
_MAX_CORRELATION_ID = 0x7FFFFFFF

Address = tuple[str, int]
# Called once with the response, on a network thread, or with the reason why there is none, on any thread. A call that
# still reads the response's frame returns a Pending that keeps the receive buffer, see `Link.ask`.
Done = Callable[[Any, "LinkError | None"], "Pending | None"]
Decode = Callable[[memoryview, int, int], Any]


class LinkError(Exception):
    """Passed to the callback of a request when there is no response.

    The broker cannot be reached, is too slow, or does not serve the request's version: then `unsupported` is True.
    """

    def __init__(self, reason: str, *, unsupported: bool = False) -> None:
        super().__init__(reason)
        self.unsupported = unsupported


class Network(Protocol):
    """The part of the network server that opens outgoing connections: see SocketServer.open."""

    def open(
        self,
        address: Address,
        handler: Any,
        done: Callable[..., object],
        timeout_s: float,
        *,
        receive_buffer: int,
        prepare: Prepare | None,
    ) -> None: ...


class Encoded(NamedTuple):
    """A message that is encoded already, without a header, in pieces: a large one would delay the network thread."""

    pieces: Sequence[Buffer]


class _Request(NamedTuple):
    api: Api
    message: Any  # or a function that makes the message for a version
    done: Done
    versions: tuple[int, int]
    decode: Decode | None
    timeout_s: float


class _Sent(NamedTuple):
    request: _Request
    version: int
    correlation_id: int
    deadline: float


class Link:
    """A connection to another broker for one purpose. `ask` and `close` may be called on any thread."""

    def __init__(
        self,
        name: str,
        address: Callable[[], Address | None],
        network: Network,
        run: Callable[..., object],
        *,
        client_id: str,
        connect_timeout_s: float,
        receive_buffer: int = -1,
        mechanism: Callable[[str], ClientMechanism] | None = None,
        prepare: Callable[[str], Prepare | None] | None = None,
    ) -> None:
        """`address()` returns the broker's present address, None if the broker is not alive. `run(fn, *args)` calls a
        function that may block, such as looking up a host name, on a pool. `name` is for log lines and errors, as
        "broker 3". `receive_buffer` is the connection's SO_RCVBUF in bytes, -1 for the system's default.
        `mechanism(host)` returns a new SASL login at the broker; it is called on the pool. None: no login.
        `prepare(host)` returns what prepares a connection to the host that `address()` names, such as its TLS.
        """
        self.name = name
        self._address = address
        self._network = network
        self._run = run
        self._client_id = client_id
        self.connect_timeout_s = connect_timeout_s
        self._receive_buffer = receive_buffer
        self._mechanism = mechanism
        self._prepare = prepare
        self._lock = threading.Lock()
        self._queue: deque[_Request] = deque()
        self._connecting = False
        self._closed = False
        self._conn: Connection | None = None  # set when the versions are known
        self._opening: Connection | None = None  # set until the versions are known
        # Only the connection's network thread uses these.
        self._sent: deque[_Sent] = deque()
        self._ranges: dict[int, tuple[int, int]] = {}
        self._last_id = 0
        self._next_check = math.inf  # when the deadlines are looked at next
        self._handled: Connection | None = None  # `handle` is being called; requests are sent when it returns
        self._host = ""  # as the address names it
        self._logging_in = False
        self._refusal = ""  # why the last login failed

    def __repr__(self) -> str:
        return f"Link({self.name}, {self._client_id})"

    # --- for any thread

    def ask(
        self,
        api: Api,
        message: Any,
        done: Done,
        *,
        timeout_s: float,
        versions: tuple[int, int] | None = None,
        decode: Decode | None = None,
    ) -> None:
        """Send a request, and call `done(response, None)` when the response comes, or `done(None, error)` with a
        LinkError.

        The version is the highest that both brokers and `versions` (lowest, highest) allow. `message` may be a function
        that returns the message for that version, or an Encoded. `decode(frame, version, start)` replaces the codec of
        the API. Its result may refer to the frame if `done` then returns a Pending, which keeps the receive buffer
        until the Pending is completed (with NO_REPLY). After a time-out of `timeout_s` the connection is closed,
        because responses come in the order of the requests: those of later requests would have to wait as well.
        """
        request = _Request(api, message, done, versions or (api.min_version, api.max_version), decode, timeout_s)
        with self._lock:
            closed = self._closed
            if not closed:
                self._queue.append(request)
            conn = self._conn
            connect = not closed and conn is None and not self._connecting
            self._connecting = self._connecting or connect
        if closed:
            done(None, LinkError(f"the connection to {self.name} is closed"))
        elif conn is not None:
            conn.processor.call(self._send_queued, conn)
        elif connect:
            self._connect()

    def close(self) -> None:
        """Close the connection permanently. Requests that have no response yet, and later ones, fail with LinkError."""
        with self._lock:
            self._closed = True
            conn = self._conn or self._opening
        if conn is not None:
            conn.processor.post(conn.processor.close, conn)

    # --- connecting

    def _connect(self) -> None:
        address = self._address()
        if address is None:
            self._failed(f"{self.name} is not alive")
            return
        try:
            ipaddress.ip_address(address[0])
        except ValueError:
            try:
                self._run(self._look_up, address)
            except (PoolStopped, NoThread) as error:
                self._failed(f"the host name of {self.name} at {host_port(*address)} is not looked up: {error}")
        else:
            self._open(address, address)

    def _look_up(self, address: Address) -> None:
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: it cannot be a host name, such as "a..b"
            self._failed(f"the host name of {self.name} at {host_port(*address)} is not found: {error}")
        else:
            self._open((str(found[0][4][0]), int(found[0][4][1])), address)

    def _open(self, address: Address, shown: Address) -> None:
        self._host = shown[0]

        def opened(conn: Connection | None, error: Exception | None) -> None:
            if conn is None:
                self._failed(f"no connection to {self.name} at {host_port(*shown)}: {error}")
            else:
                self._opened(conn)

        prepare = self._prepare(shown[0]) if self._prepare is not None else None
        self._network.open(
            address, self, opened, self.connect_timeout_s, receive_buffer=self._receive_buffer, prepare=prepare
        )

    def _opened(self, conn: Connection) -> None:
        conn.on_close = lambda: self._lost(conn)
        with self._lock:
            self._opening = conn
            closed = self._closed
        if closed:
            conn.processor.close(conn)
            return
        self._next_check = math.inf
        hello = API_VERSIONS.Request(client_software_name="kafkapy", client_software_version=VERSION)
        version = _API_VERSIONS_VERSION
        request = _Request(
            API_VERSIONS,
            hello,
            lambda *it: self._versions(conn, *it),
            (version, version),
            None,
            self.connect_timeout_s,
        )
        self._send(conn, request, version, self._frame(request, version))

    def _versions(self, conn: Connection, response: Any, error: LinkError | None) -> None:
        if error is not None:
            return  # the connection is lost, and `_lost` is called
        if response.error_code != Errors.NONE:
            log.error("%s refuses ApiVersions v%d: error %d", self.name, _API_VERSIONS_VERSION, response.error_code)
            conn.processor.close(conn)
            return
        self._ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        if self._mechanism is None:
            self._ready(conn)
        else:
            self._log_in(conn)

    def _ready(self, conn: Connection) -> None:
        with self._lock:
            self._connecting = False
            self._conn, self._opening = conn, None
            closed = self._closed
        if closed:
            conn.processor.close(conn)
        else:
            self._send_queued(conn)

    def _log_in(self, conn: Connection) -> None:
        """Log in, or log in again. Requests that were sent before are answered meanwhile; later ones wait."""
        if conn.closed or self._mechanism is None:
            return
        # Imported only when needed, for a fast start.
        from kafkapy.replica.link_login import LinkLogin
        from kafkapy.security.sasl.relogin import next_login_s

        mechanism, host = self._mechanism, self._host

        def ask(api: Api, message: Any, answered: Callable[[Any], None]) -> None:
            version = min(api.max_version, self._ranges.get(api.key, (0, -1))[1])
            if version < _FIRST_LOGIN_VERSION.get(api.key, 0):
                done(f"it serves {api.name} up to v{version} only", 0.0)
                return

            def responded(response: Any, error: LinkError | None) -> None:
                if error is None:  # otherwise the connection is lost, and `_lost` is called
                    answered(response)

            request = _Request(api, message, responded, (0, version), None, self.connect_timeout_s)
            self._send(conn, request, version, self._frame(request, version))

        def done(reason: str | None, lifetime_s: float) -> None:
            self._logging_in = False
            if reason is not None:
                if reason != self._refusal:
                    self._refusal = reason
                    log.error("the login at %s failed: %s", self.name, reason)
                conn.processor.close(conn)
                return
            self._refusal = ""
            if lifetime_s > 0:
                conn.processor.call_at(conn.processor.now + next_login_s(lifetime_s), self._log_in, conn)
            if self._conn is conn:
                self._send_queued(conn)
            else:
                self._ready(conn)

        self._logging_in = True
        LinkLogin(conn, lambda: mechanism(host), ask, self._run, done).begin()

    # --- on the connection's network thread

    def keep_buffer(self) -> Pending:
        """Return a Pending for `done` to return, which keeps the receive buffer until it is completed with NO_REPLY.

        May only be called inside `done`, with a response.
        """
        assert self._conn is not None, "there is a response, so there is a connection"
        pending = Pending(self._conn)
        pending.keeps_buffer = True
        return pending

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        """Decode received responses and call the callbacks of their requests, see `kafkapy.network.replies.Handler`."""
        replies: list[Reply] = []
        self._handled = connection
        try:
            for frame in frames:
                reply: Reply = self._response(frame)
                replies.append(reply)
                if reply is CLOSE or isinstance(reply, Pending):
                    break
        finally:
            self._handled = None
        return replies

    def end_turn(self, gathered: Any) -> Any:
        """Raise AssertionError: the network server never calls this for a Link, which does not gather frames."""
        raise AssertionError("a link gathers nothing")

    def _response(self, frame: memoryview) -> Reply:
        if not self._sent:
            log.error("%s sent a response without a request", self.name)
            return CLOSE
        sent = self._sent[0]
        api = sent.request.api
        try:
            correlation_id, start = read_response_header(frame, api, sent.version)
            if correlation_id != sent.correlation_id:
                raise ProtocolError(f"correlation id {correlation_id} instead of {sent.correlation_id}")
            decode = sent.request.decode
            if decode is not None:
                response = decode(frame, sent.version, start)
            else:
                response = api.decode_response(frame, sent.version, start)
        except ProtocolError as error:
            log.error("the response of %s to %s v%d is invalid: %s", self.name, api.name, sent.version, error)
            return CLOSE
        self._sent.popleft()
        pending = sent.request.done(response, None)
        return NO_REPLY if pending is None else pending

    def _send_queued(self, conn: Connection) -> None:
        while not conn.closed and not self._logging_in:
            with self._lock:
                if not self._queue:
                    return
                request = self._queue.popleft()
            api, (lowest, highest) = request.api, request.versions
            low, high = self._ranges.get(api.key, (0, -1))
            version = min(highest, high)
            if version < max(lowest, low):
                wanted = f"not v{lowest} to v{highest}"
                _fail(request, f"{self.name} serves {api.name} v{low} to v{high}, {wanted}", unsupported=True)
                continue
            try:
                frame = self._frame(request, version)
            except Exception as error:  # the requests behind it must not wait for ever
                log.exception("%s v%d to %s cannot be encoded", api.name, version, self.name)
                _fail(request, f"{api.name} v{version} to {self.name} cannot be encoded: {error}")
                continue
            self._send(conn, request, version, frame)

    def _frame(self, request: _Request, version: int) -> list[Buffer]:
        """Return the encoded frame of the request in this version, with the next correlation id, in pieces."""
        self._last_id = self._last_id % _MAX_CORRELATION_ID + 1
        message = request.message(version) if callable(request.message) else request.message
        if isinstance(message, Encoded):
            return request_frame_of(request.api, version, self._last_id, self._client_id, message.pieces)
        return [request_frame(request.api, version, self._last_id, self._client_id, message)]

    def _send(self, conn: Connection, request: _Request, version: int, frame: list[Buffer]) -> None:
        deadline = conn.processor.now + request.timeout_s
        self._sent.append(_Sent(request, version, self._last_id, deadline))
        if deadline < self._next_check:
            self._check_at(deadline, conn)
        conn.processor.send(conn, [*frame], by_handler=conn is self._handled)

    def _check_at(self, when: float, conn: Connection) -> None:
        """Have the deadlines of sent requests checked at the time `when`, which is before the next check. One timer
        serves many requests."""
        self._next_check = when
        conn.processor.call_at(when, self._check_deadlines, conn, when)

    def _check_deadlines(self, conn: Connection, when: float) -> None:
        """Close the connection if the response of a request is late, otherwise schedule a check at the next
        deadline.
        """
        if conn.closed or when != self._next_check:
            return
        self._next_check = math.inf
        if not self._sent:
            return
        first = min(self._sent, key=lambda sent: sent.deadline)
        if first.deadline <= conn.processor.now:
            log.warning(
                "%s did not respond to %s within %g s", self.name, first.request.api.name, first.request.timeout_s
            )
            conn.processor.close(conn)
        else:
            self._check_at(first.deadline, conn)

    def _lost(self, conn: Connection) -> None:
        sent, self._sent = self._sent, deque()
        self._logging_in = False
        reason = f"the connection to {self.name} was lost"
        if conn.failure:
            reason += f": {conn.failure}"
        if self._refusal:
            reason = f"the login at {self.name} failed: {self._refusal}"
        for one in sent:
            _fail(one.request, reason)
        self._failed(reason)

    def _failed(self, reason: str) -> None:
        """Fail all requests that were not sent yet, with LinkError. The next call of `ask` connects again."""
        with self._lock:
            queue, self._queue = self._queue, deque()
            self._conn = self._opening = None
            self._connecting = False
        for request in queue:
            _fail(request, reason)


def _fail(request: _Request, reason: str, *, unsupported: bool = False) -> None:
    """Call the request's `done` with a LinkError. An exception of `done` is logged, because the other requests must
    fail too.
    """
    try:
        request.done(None, LinkError(reason, unsupported=unsupported))
    except Exception:
        log.exception("the callback of a failed %s request failed", request.api.name)
