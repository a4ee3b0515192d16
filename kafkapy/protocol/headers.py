"""Request and response headers, and whole frames (size, header and message).

A request header has the API key, API version and correlation id (header v0), a nullable client id (added in v1), and
tagged fields (added in v2, for flexible requests). The client id has an int16 length even in v2. A response header has
the correlation id (v0) and tagged fields (added in v1, for flexible responses). ApiVersions responses always have
header v0, so that a client can read the response to a version that the broker does not know (KIP-511).
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kafkapy.errors import ProtocolError
from kafkapy.protocol.apis import API_VERSIONS, APIS, Api, Buffer
from kafkapy.protocol.strings import LONGEST

_REQUEST = struct.Struct(">hhi")
_REQUEST_TO_CLIENT = struct.Struct(">hhih")  # also with the length of the client id
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_CONTROLLED_SHUTDOWN = 7
NO_TAGGED_FIELDS = b"\x00"
_ONE_PIECE = 4 << 10  # frames with fewer bytes are joined
# Kafka defines no tagged fields of headers so far. A frame has room for fifty million, which would keep a network
# thread busy for a minute.
_MAX_TAGGED_FIELDS = 1000


class RequestHeader(NamedTuple):
    """A decoded request header. A null client id becomes an empty string, as in Kafka."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


class UnsupportedApi(ProtocolError):
    """Raised for a request whose API key or API version the broker does not know. Only the start of such a request's
    header can be read.

    Kafka closes the connection of such a client. The exception is an ApiVersions request of an unknown version, which
    the broker answers (see `api_versions.unsupported`).
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        api = APIS.get(api_key)
        what = f"unknown API key {api_key}" if api is None else f"{api.name} has no version {api_version}"
        super().__init__(f"{what} (correlation id {correlation_id})")


def read_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """Decode the request header at the start of a frame (without the frame's size). Return the header and the position
    where the request message begins.

    Raises UnsupportedApi for an unknown API key or version, and ProtocolError for a frame that ends inside the header
    or an invalid header.
    """
    size = len(buffer)
    if size >= 10:
        key, version, correlation_id, length = _REQUEST_TO_CLIENT.unpack_from(buffer)
    elif size >= 8:
        key, version, correlation_id = _REQUEST.unpack_from(buffer)
    else:
        raise ProtocolError(f"a frame of {size} bytes is too short for a request header")
    api = APIS.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise UnsupportedApi(key, version, correlation_id)
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(key, version, correlation_id, ""), 8
    if size < 10:
        raise ProtocolError(f"{api.name} v{version}: the frame ends before the client id")
    at = 10 + length if length > 0 else 10
    if at > size:
        raise ProtocolError(f"{api.name} v{version}: a client id of {length} bytes with {size - 10} bytes left")
    client_id = str(memoryview(buffer)[10:at], "utf-8", "replace")
    # An invalid byte is replaced by three bytes, so the client id may become too long for a group's record, which
    # stores its members' client ids.
    if length > LONGEST // 3 and len(client_id.encode()) > LONGEST:
        raise ProtocolError(f"{api.name} v{version}: a client id of {length} bytes that is not UTF-8")
    if version >= api.flexible_from:
        if at < size and buffer[at] == 0:  # usually there are no tagged fields; this saves formatting the name
            at += 1
        else:
            at = _skip_tagged_fields(buffer, at, f"{api.name} v{version}: request header")
    return RequestHeader(key, version, correlation_id, client_id), at


def read_response_header(buffer: Buffer, api: Api, version: int) -> tuple[int, int]:
    """Decode the response header at the start of a frame (without the frame's size). Return the correlation id and the
    position where the response message begins. Raises ProtocolError for a frame that ends inside the header."""
    if len(buffer) < 4:
        raise ProtocolError(f"a frame of {len(buffer)} bytes is too short for a response header")
    correlation_id = _INT32.unpack_from(buffer)[0]
    if _response_is_flexible(api, version):
        if len(buffer) > 4 and buffer[4] == 0:  # usually there are no tagged fields; this saves formatting the name
            return correlation_id, 5
        return correlation_id, _skip_tagged_fields(buffer, 4, f"{api.name} v{version}: response header")
    return correlation_id, 4


def request_frame(api: Api, version: int, correlation_id: int, client_id: str | None, message: Any) -> bytes:
    """Return a whole request frame: size, request header and the encoded message."""
    return api.request_program(version).encode_frame(_request_header(api, version, correlation_id, client_id), message)


def request_frame_of(
    api: Api, version: int, correlation_id: int, client_id: str | None, encoded: Sequence[Buffer]
) -> list[Buffer]:
    """Return a whole request frame, in pieces: size, request header, and the message in pieces, which is encoded
    already. A small frame is one piece."""
    header = _request_header(api, version, correlation_id, client_id)
    size = len(header) + sum(map(len, encoded))
    pieces = [_INT32.pack(size), header, *encoded]
    return [b"".join(pieces)] if size < _ONE_PIECE else pieces


def _request_header(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    return _REQUEST.pack(api.key, version, correlation_id) + _after_correlation_id(api, version, client_id)


@lru_cache(64)  # a connection's requests have the same client id
def _after_correlation_id(api: Api, version: int, client_id: str | None) -> bytes:
    rest = b""
    if api.key != _CONTROLLED_SHUTDOWN or version > 0:
        client = None if client_id is None else client_id.encode("utf-8", "replace")
        rest = b"\xff\xff" if client is None else _INT16.pack(len(client)) + client
    if version >= api.flexible_from:
        rest += NO_TAGGED_FIELDS
    return rest


def response_frame(api: Api, version: int, correlation_id: int, message: Any) -> bytes:
    """Return a whole response frame: size, response header and the encoded message."""
    head = _INT32.pack(correlation_id)
    if _response_is_flexible(api, version):
        head += NO_TAGGED_FIELDS
    return api.response_program(version).encode_frame(head, message)


def _response_is_flexible(api: Api, version: int) -> bool:
    return version >= api.flexible_from and api is not API_VERSIONS


def _skip_tagged_fields(buffer: Buffer, at: int, where: str) -> int:
    if at < len(buffer) and buffer[at] == 0:
        return at + 1
    count, at = _varint(buffer, at, where)
    if count > _MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{where}: {count} tagged fields, the limit is {_MAX_TAGGED_FIELDS}")
    for _ in range(count):
        _, at = _varint(buffer, at, where)
        size, at = _varint(buffer, at, where)
        if size > len(buffer) - at:
            raise ProtocolError(f"{where}: a tagged field of {size} bytes with {len(buffer) - at} bytes left")
        at += size
    return at


def _varint(buffer: Buffer, at: int, where: str) -> tuple[int, int]:
    value = 0
    for index in range(5):
        if at + index >= len(buffer):
            raise ProtocolError(f"{where}: the frame ends inside a varint at byte {at}")
        byte = buffer[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ProtocolError(f"{where}: the varint at byte {at} is longer than 5 bytes")
