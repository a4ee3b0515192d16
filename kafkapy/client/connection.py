"""A blocking connection to one broker: framing, correlation ids, version negotiation, login, time-outs."""

import errno
import math
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from kafkapy.client.errors import (
    AuthenticationFailed,
    BrokerTimedOut,
    ConnectionFailed,
    UnsupportedByBroker,
)
from kafkapy.client.login import log_in
from kafkapy.client.security import PLAINTEXT, Security
from kafkapy.errors import Errors, KafkaError, ProtocolError, UnsupportedVersion
from kafkapy.protocol.apis import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    Api,
)
from kafkapy.protocol.headers import read_response_header, request_frame
from kafkapy.runtime.addresses import host_port
from kafkapy.security.sasl.relogin import next_login_s
from kafkapy.version import VERSION

LARGEST_FRAME = 1 << 30  # a larger size is no Kafka frame: "HTTP" read as a size is 1.2 GB

# The API versions of Kafka 0.8.2 and 0.9, by API key. These brokers have no ApiVersions (KIP-35), and close the
# connection when they receive it.
BEFORE_API_VERSIONS = {
    PRODUCE.key: (0, 0),
    FETCH.key: (0, 0),
    LIST_OFFSETS.key: (0, 0),
    METADATA.key: (0, 0),
    OFFSET_COMMIT.key: (0, 1),
    OFFSET_FETCH.key: (0, 1),
    FIND_COORDINATOR.key: (0, 0),
}

_SIZE = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_TLS_ALERT = b"\x15\x03"  # the first bytes of a TLS server's complaint that the client does not speak TLS


class SentRequest(NamedTuple):
    """A request that was sent and has no response yet, as `Connection.send` returns it."""

    api: Api
    version: int
    correlation_id: int


class FrameMemory:
    """Memory that is reused for one response after another.

    Getting fresh pages from the kernel for each response would cost as much as receiving the response into them.
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def view(self, size: int) -> memoryview:
        """Return a writable view of `size` bytes. What is written to it may overwrite the content of earlier views."""
        if size > len(self._data):
            self._data = bytearray(1 << max(16, (size - 1).bit_length()))
        return memoryview(self._data)[:size]


class Connection:
    """A blocking connection to one broker. Several requests may be in flight; the responses come in the same order.

    `send` sends a request, `receive` receives the next response, and `call` does both. An error other than an error
    code in a response closes the connection, which cannot be used again afterwards.

    Args:
        timeout_s: How long to wait for a response, unless a call says otherwise.
        connect_timeout_s: How long connecting may take for each address of the host.
        old_brokers: Assume a broker of Kafka 0.8.2 if the broker closes the connection on ApiVersions.
        security: Whether to use TLS, and to log in. If the broker limits the session, `send` logs in again in time.
    Raises:
        ConnectionFailed: Nothing listens at the address, or the server there is no Kafka broker.
        AuthenticationFailed: The broker refuses the login or the certificate, or has a certificate that is not trusted.
        BadSecuritySettings: The settings in `security` cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "kafkapy",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        old_brokers: bool = False,
        security: Security = PLAINTEXT,
    ) -> None:
        self.address = host_port(host, port)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._host = host
        self._security = security
        self._tls: ModuleType | None = import_module("kafkapy.client.tls") if security.tls else None
        self._correlation_id = 0
        self._waiting: deque[SentRequest] = deque()
        self._early: deque[memoryview] = deque()  # received responses to the first requests in _waiting
        self._size = memoryview(bytearray(4))  # the size of the next frame, of which _size_end bytes were received
        self._size_end = 0
        self._is_proved = False  # the broker has sent a response, so it accepts the certificate or needs none
        self._is_served = security.login  # the broker has answered a request after ApiVersions, or this client logs in
        self._ranges: dict[int, tuple[int, int]] = {}
        self._log_in_at = math.inf  # a time.monotonic() time
        self._socket = self._connect(host, port, connect_timeout_s)
        try:
            self._negotiate()
        except ConnectionFailed as error:
            if not old_brokers or isinstance(error, BrokerTimedOut):
                raise
            self._socket = self._connect(host, port, connect_timeout_s)
            self._ranges = BEFORE_API_VERSIONS
        if security.login:
            self._log_in()

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    @property
    def usable(self) -> bool:
        """Whether another request can be sent. False after this client has closed the connection, or the broker has,
        as brokers do with idle connections (connections.max.idle.ms). The broker's end is not noticed while a response
        is outstanding."""
        if self.closed or self._waiting:
            return not self.closed
        hang_up = select.poll()
        hang_up.register(self._socket, select.POLLRDHUP)
        return not hang_up.poll(0)

    @property
    def in_flight(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._waiting)

    def fileno(self) -> int:
        """Return the socket's file descriptor for select.poll, or -1 if the connection is closed."""
        return self._socket.fileno()

    @property
    def has_received(self) -> bool:
        """Whether bytes of the next response were received already. Then a poll of the socket may find nothing."""
        if self._early or self._size_end:
            return True
        return self._tls is not None and not self.closed and self._tls.has_buffered(self._socket)

    def close(self) -> None:
        self._waiting.clear()
        self._early.clear()
        self._socket.close()

    def lend_socket(self) -> socket.socket:
        """Return the connected and logged-in socket, on which the caller exchanges requests and responses itself.

        Raise ValueError if a response is outstanding. This connection sends nothing until `log_in_again`.
        """
        if self._waiting or self.has_received:
            raise ValueError(f"a response of {self.address} is outstanding")
        return self._socket

    @property
    def log_in_at(self) -> float:
        """When to log in again, a time.monotonic() time; infinite if the broker does not limit the session."""
        return self._log_in_at

    def log_in_again(self) -> None:
        """Log in again on a lent socket, on which no response is outstanding. Raise AuthenticationFailed if the broker
        refuses that."""
        self._log_in()

    def version_of(self, api: Api, at_most: int | None = None) -> int:
        """Return the newest version of the API that the broker, this client and `at_most` allow.

        Raise UnsupportedByBroker if there is no such version.
        """
        low, high = self._ranges.get(api.key, (0, -1))
        newest = min(high, api.max_version if at_most is None else at_most)
        if newest < max(low, api.min_version):
            has = f"versions {low} to {high} of it" if high >= 0 else "no such API"
            raise UnsupportedByBroker(
                f"The broker at {self.address} cannot do {api.name} for this client: it has {has}, "
                f"the client versions {api.min_version} to {api.max_version if at_most is None else at_most}."
            )
        return newest

    def call(self, api: Api, request: Any, *, at_most: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and return its response. Responses to earlier requests are received first and dropped.

        Raise KafkaError INVALID_REQUEST if the request cannot be encoded, UnsupportedByBroker if the broker has no
        suitable version of the API, and ConnectionFailed or BrokerTimedOut if no response comes.
        """
        waiting = self.send(api, request, at_most=at_most)
        while True:
            answered, response = self.receive(timeout_s)
            if answered is waiting:
                return response

    def send(self, api: Api, request: Any, *, at_most: int | None = None, answer: bool = True) -> SentRequest:
        """Send a request without waiting for its response. Return the SentRequest, which `receive` will return, too.

        Args:
            at_most: The highest version to use.
            answer: False if the broker will send no response (Produce with acks=0).
        Raises:
            KafkaError: INVALID_REQUEST. The request has values that cannot be encoded, such as a name of 40,000 bytes.
            UnsupportedByBroker: The broker supports no suitable version of the API.
            ConnectionFailed: The connection broke, or the broker did not take the request in time.
            AuthenticationFailed: The session was about to end, and the broker refused the next login.
        """
        version = self.version_of(api, at_most)
        if time.monotonic() >= self._log_in_at:
            self._log_in()
        sent = self._write(api, version, request)
        if answer:
            self._waiting.append(sent)
        return sent

    def wait_for_answer(self, timeout_s: float) -> bool:
        """Return True once a response begins to arrive or the broker hangs up. Return False after `timeout_s`.

        Also return False if no request waits for a response. A time-out does not close the connection.
        """
        if not self._waiting or self.closed:
            return False
        waiter = select.poll()  # select.select takes no descriptor above 1023
        waiter.register(self._socket, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while not self.has_received:
            if not waiter.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return False
            if self.begins_to_receive():
                break
        return True

    def begins_to_receive(self) -> bool:
        """Return True if the socket, which can be read, has bytes of a response or the end of the stream.

        Return False if it only had a TLS message that carries no bytes of a response, such as a key update.
        """
        if self._tls is None or self.has_received:
            return True
        try:
            received = self._tls.receive_at_once(self._socket, self._size)
        except OSError:
            return True  # `receive` will get the same error
        if received is None:
            return False
        self._size_end = received
        return True

    def receive(self, timeout_s: float | None = None, memory: FrameMemory | None = None) -> tuple[SentRequest, Any]:
        """Receive the next response. Return its request (as `send` returned it) and the decoded response.

        Args:
            timeout_s: How long to wait for the response. None: the connection's own time limit.
            memory: Where to put the response. The records in the response are valid until this memory is used again.
        Raises:
            BrokerTimedOut: No response came in time.
            ConnectionFailed: The broker closed the connection, or sent something other than the response.
            ValueError: No request waits for a response.
        """
        if not self._waiting:
            raise ValueError(f"no request to {self.address} waits for an answer")
        waiting = self._waiting.popleft()
        allowed = self.timeout_s if timeout_s is None else timeout_s
        with self._closing_on_failure(waiting, allowed):
            frame, body = self._answer_to(waiting, time.monotonic() + allowed, memory)
            self._is_served = True
            return waiting, waiting.api.decode_response(frame, waiting.version, body)

    def _connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        try:
            connected = socket.create_connection((host, port), timeout_s)
        except (OSError, UnicodeError, OverflowError) as error:  # UnicodeError, OverflowError: invalid host or port
            raise ConnectionFailed(
                f"No connection to {self.address}: {_reason(error)}. Is a broker listening there?"
            ) from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return connected
        try:
            context = self._security.context()
        except BaseException:
            connected.close()
            raise
        encrypted: socket.socket = self._tls.encrypt(connected, context, host, self.address)
        return encrypted

    def _log_in(self) -> None:
        """Log in, or log in again. If that fails, close the connection."""
        self._log_in_at = math.inf
        try:
            lifetime_ms = log_in(self, self._security.mechanism(self._host))
        except BaseException:
            self.close()
            raise
        if lifetime_ms > 0:
            self._log_in_at = time.monotonic() + next_login_s(lifetime_ms / 1000)

    def exchange(self, api: Api, request: Any) -> Any:
        """Send a request of a login, and return its response. Earlier responses are kept for `receive`."""
        sent = self._write(api, self.version_of(api), request)
        with self._closing_on_failure(sent, self.timeout_s):
            self._receive_earlier()
            frame = self._read_frame(time.monotonic() + self.timeout_s, None)
            return api.decode_response(frame, sent.version, _body_of(frame, sent))

    def exchange_token(self, token: bytes) -> bytes:
        """Send a login token outside of a request, as after SaslHandshake version 0, and return the answer to it."""
        self._transmit(_SIZE.pack(len(token)) + token)
        sent = SentRequest(SASL_AUTHENTICATE, 0, 0)  # for messages
        with self._closing_on_failure(sent, self.timeout_s):
            return bytes(self._read_frame(time.monotonic() + self.timeout_s, None, least=0))

    def _receive_earlier(self) -> None:
        """Receive the responses to all requests that wait for one."""
        while len(self._early) < len(self._waiting):
            self._early.append(self._read_frame(time.monotonic() + self.timeout_s, None))

    def _write(self, api: Api, version: int, request: Any) -> SentRequest:
        """Encode and send a request. Raise KafkaError INVALID_REQUEST if it has values that cannot be encoded."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        sent = SentRequest(api, version, self._correlation_id)
        try:
            frame = request_frame(api, version, sent.correlation_id, self.client_id, request)
        except ValueError as reason:
            raise KafkaError(Errors.INVALID_REQUEST, f"{api.name} cannot be sent: {reason}") from reason
        self._transmit(frame)
        return sent

    def _negotiate(self) -> None:
        """Send ApiVersions, and store the broker's range of supported versions for each API.

        The newest version of ApiVersions is tried first. A broker that does not support that version responds in
        version 0 with UNSUPPORTED_VERSION (KIP-511). The error code comes first in every version, so it is read before
        the response is decoded.
        """
        self._ranges = {API_VERSIONS.key: (0, API_VERSIONS.max_version)}
        request = API_VERSIONS.Request(client_software_name="kafkapy", client_software_version=VERSION)
        response: Any = None
        for at_most in (None, 0):
            waiting = self.send(API_VERSIONS, request, at_most=at_most)
            with self._closing_on_failure(self._waiting.popleft(), self.timeout_s):
                frame, body = self._answer_to(waiting, time.monotonic() + self.timeout_s)
                refused = len(frame) >= body + 2 and _INT16.unpack_from(frame, body)[0] == Errors.UNSUPPORTED_VERSION
                response = API_VERSIONS.decode_response(frame, 0 if refused else waiting.version, body)
            if not refused:
                break
        if response.error_code != Errors.NONE:
            self.close()
            raise KafkaError(response.error_code, f"the broker at {self.address} refuses ApiVersions")
        self._ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}

    @contextmanager
    def _closing_on_failure(self, waiting: SentRequest, allowed_s: float) -> Iterator[None]:
        """Close the connection if the `with` block fails, because later responses would be misread.

        Turn a time-out into BrokerTimedOut and a malformed response into ConnectionFailed. Their messages name the
        broker and the request `waiting`.
        """
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise BrokerTimedOut(
                f"The broker at {self.address} did not answer {waiting.api.name} within {allowed_s:g} s."
            ) from error
        except (ProtocolError, UnsupportedVersion) as error:
            self.close()
            raise ConnectionFailed(
                f"What {self.address} answered to {waiting.api.name} version {waiting.version} is not a Kafka "
                f"response: {error}."
            ) from error
        except BaseException:
            self.close()
            raise

    def _answer_to(
        self, waiting: SentRequest, deadline: float, memory: FrameMemory | None = None
    ) -> tuple[memoryview, int]:
        """Receive the response to `waiting`. Return the frame, and the position in it at which the body begins.

        Raise ProtocolError if the response has another correlation id, and the errors of `_read`.
        """
        frame = self._early.popleft() if self._early else self._read_frame(deadline, memory)
        return frame, _body_of(frame, waiting)

    def _transmit(self, frame: bytes) -> None:
        """Send a whole frame. If that fails, close the connection and raise ConnectionFailed or BrokerTimedOut."""
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(frame)
        except TimeoutError as error:
            self.close()
            raise BrokerTimedOut(
                f"The broker at {self.address} took no request of {len(frame)} bytes within {self.timeout_s:g} s."
            ) from error
        except OSError as error:
            self.close()
            raise self._broken(error) from error
        except BaseException:  # also KeyboardInterrupt: the next request would be taken for the rest of this one
            self.close()
            raise

    def _read_frame(self, deadline: float, memory: FrameMemory | None, *, least: int = 4) -> memoryview:
        """Receive a frame, which is preceded by its size, and return it without the size.

        The frame is stored in `memory`, if given. Raise ProtocolError for a size below `least` or above LARGEST_FRAME,
        and the errors of `_read`.
        """
        self._read(self._size, deadline, self._size_end)
        self._size_end = 0
        (size,) = _SIZE.unpack(self._size)
        if not least <= size <= LARGEST_FRAME or self._size[:2] == _TLS_ALERT:
            is_tls = self._size[:2] == _TLS_ALERT and not self._security.tls
            raise ProtocolError("an alert of TLS; the listener needs TLS" if is_tls else f"a frame of {size} bytes")
        frame = self._read(memoryview(bytearray(size)) if memory is None else memory.view(size), deadline)
        self._is_proved = True
        return frame

    def _read(self, data: memoryview, deadline: float, have: int = 0) -> memoryview:
        """Fill `data`, of which `have` bytes were received before, with bytes from the socket and return it.

        Raise TimeoutError if the bytes have not come by `deadline` (time.monotonic), ConnectionFailed if the connection
        breaks, and AuthenticationFailed if the broker refuses the TLS certificate of this client.
        """
        while have < len(data):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            try:
                got = self._socket.recv_into(data[have:])
            except TimeoutError:
                raise
            except OSError as error:
                raise self._broken(error) from error
            if got == 0:
                raise ConnectionFailed(f"The broker at {self.address} closed the connection.{self._hint()}")
            have += got
        return data

    def _hint(self) -> str:
        """Return what may be wrong if the broker closes the connection; "" if it has served requests before."""
        if not self._is_proved and self._tls is None:
            return " Does it need TLS? See security.protocol."
        if self._is_proved and not self._is_served:
            return " Does it need a login? See security.protocol."
        return ""

    def _broken(self, error: OSError) -> AuthenticationFailed | ConnectionFailed:
        """Return the exception to raise for an error of the socket.

        With TLS 1.3, a broker refuses a certificate when the client's handshake is already over.
        """
        if self._tls is not None and self._tls.is_refusal(error) and not self._is_proved:
            reason = self._tls.reason_of(error)
            return AuthenticationFailed(f"The broker at {self.address} refused the TLS connection: {reason}.")
        return ConnectionFailed(f"The connection to {self.address} broke: {_reason(error)}.")


def _body_of(frame: memoryview, sent: SentRequest) -> int:
    """Return the position in the frame at which the body of the response to `sent` begins.

    Raise ProtocolError if the response has another correlation id.
    """
    correlation_id, body = read_response_header(frame, sent.api, sent.version)
    if correlation_id != sent.correlation_id:
        raise ProtocolError(f"correlation id {correlation_id} instead of {sent.correlation_id}")
    return body


def _reason(error: Exception) -> str:
    """Return a short description of a connection error, for messages."""
    if not isinstance(error, OSError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it took too long"
    if error.errno == errno.ECONNREFUSED:
        return "connection refused"
    return error.strerror or str(error)
