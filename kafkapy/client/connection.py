"""A blocking connection to one broker: framing, correlation ids, version negotiation, time-outs."""

import errno
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed, UnsupportedByBroker
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
    Api,
)
from kafkapy.protocol.headers import read_response_header, request_frame
from kafkapy.runtime.addresses import host_port
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
    Raises:
        ConnectionFailed: Nothing listens at the address, or the server there is no Kafka broker.
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
    ) -> None:
        self.address = host_port(host, port)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._correlation_id = 0
        self._waiting: deque[SentRequest] = deque()
        self._ranges: dict[int, tuple[int, int]] = {}
        self._socket = self._connect(host, port, connect_timeout_s)
        try:
            self._negotiate()
        except ConnectionFailed as error:
            if not old_brokers or isinstance(error, BrokerTimedOut):
                raise
            self._socket = self._connect(host, port, connect_timeout_s)
            self._ranges = BEFORE_API_VERSIONS

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    @property
    def in_flight(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._waiting)

    def fileno(self) -> int:
        """Return the socket's file descriptor for select.poll, or -1 if the connection is closed."""
        return self._socket.fileno()

    def close(self) -> None:
        self._waiting.clear()
        self._socket.close()

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
        """
        version = self.version_of(api, at_most)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        waiting = SentRequest(api, version, self._correlation_id)
        try:
            frame = request_frame(api, version, waiting.correlation_id, self.client_id, request)
        except ValueError as reason:
            raise KafkaError(Errors.INVALID_REQUEST, f"this cannot be sent: {reason}") from reason
        self._transmit(frame)
        if answer:
            self._waiting.append(waiting)
        return waiting

    def wait_for_answer(self, timeout_s: float) -> bool:
        """Return True once a response begins to arrive or the broker hangs up. Return False after `timeout_s`.

        Also return False if no request waits for a response. A time-out does not close the connection.
        """
        if not self._waiting or self.closed:
            return False
        waiter = select.poll()  # select.select takes no descriptor above 1023
        waiter.register(self._socket, select.POLLIN)
        return bool(waiter.poll(max(0.0, timeout_s) * 1000))

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
            return waiting, waiting.api.decode_response(frame, waiting.version, body)

    def _connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        try:
            connected = socket.create_connection((host, port), timeout_s)
        except (OSError, UnicodeError, OverflowError) as error:  # UnicodeError, OverflowError: invalid host or port
            raise ConnectionFailed(
                f"No connection to {self.address}: {_reason(error)}. Is a broker listening there?"
            ) from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

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
        frame = self._read_frame(deadline, memory)
        correlation_id, body = read_response_header(frame, waiting.api, waiting.version)
        if correlation_id != waiting.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id} instead of {waiting.correlation_id}")
        return frame, body

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
            raise ConnectionFailed(f"The connection to {self.address} broke: {_reason(error)}.") from error

    def _read_frame(self, deadline: float, memory: FrameMemory | None) -> memoryview:
        """Receive a frame, which is preceded by its size, and return it without the size.

        The frame is stored in `memory`, if given. Raise ProtocolError for an impossible size, and the errors of
        `_read`.
        """
        (size,) = _SIZE.unpack(self._read(memoryview(bytearray(4)), deadline))
        if not 4 <= size <= LARGEST_FRAME:
            raise ProtocolError(f"a frame of {size} bytes")
        return self._read(memoryview(bytearray(size)) if memory is None else memory.view(size), deadline)

    def _read(self, data: memoryview, deadline: float) -> memoryview:
        """Fill `data` with bytes from the socket and return it.

        Raise TimeoutError if the bytes have not come by `deadline` (time.monotonic), and ConnectionFailed if the
        connection breaks.
        """
        have = 0
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
                raise ConnectionFailed(f"The connection to {self.address} broke: {_reason(error)}.") from error
            if got == 0:
                raise ConnectionFailed(f"The broker at {self.address} closed the connection.")
            have += got
        return data


def _reason(error: Exception) -> str:
    """Return a short description of a connection error, for messages."""
    if not isinstance(error, OSError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it took too long"
    if error.errno == errno.ECONNREFUSED:
        return "connection refused"
    return error.strerror or str(error)
