"""Request and response headers, and whole frames with them.

A request header is api key, api version, correlation id (v0), a nullable client id (v1), tagged fields (v2, for
flexible requests); the client id keeps its old form, with an int16 length, in v2. A response header is the
correlation id (v0), tagged fields (v1, for flexible responses). ApiVersions is always answered with header v0, so
that a client can read the answer to a version that the broker does not know (KIP-511).
"""

import struct
from typing import Any, NamedTuple

from kafkapy.errors import ProtocolError
from kafkapy.protocol.apis import API_VERSIONS, APIS, Api, Buffer
from kafkapy.protocol.strings import LONGEST

_REQUEST = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_CONTROLLED_SHUTDOWN = 7
NO_TAGGED_FIELDS = b"\x00"
# Headers have none so far. A frame has room for fifty million, and going over those takes a network thread a minute.
_MOST_TAGGED_FIELDS = 1000


class RequestHeader(NamedTuple):
    """What precedes a request. A null client id is the empty one, as in Kafka."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


class UnsupportedApi(ProtocolError):
    """A request of an API, or of a version of it, that has no schema: nothing after the header's start can be read.

    Kafka closes the connection, unless the API is ApiVersions: that is answered (`api_versions.unsupported`).
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        api = APIS.get(api_key)
        what = f"unknown API key {api_key}" if api is None else f"{api.name} has no version {api_version}"
        super().__init__(f"{what} (correlation id {correlation_id})")


def read_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a frame (given without its size): the header and where the request begins.

    Raises UnsupportedApi, and ProtocolError for a frame that ends inside the header.
    """
    if len(buffer) < 8:
        raise ProtocolError(f"a frame of {len(buffer)} bytes is too short for a request header")
    key, version, correlation_id = _REQUEST.unpack_from(buffer)
    api = APIS.get(key)
    if api is None or not api.has_version(version):
        raise UnsupportedApi(key, version, correlation_id)
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(key, version, correlation_id, ""), 8
    if len(buffer) < 10:
        raise ProtocolError(f"{api.name} v{version}: the frame ends before the client id")
    length = _INT16.unpack_from(buffer, 8)[0]
    at = 10 + max(length, 0)
    if at > len(buffer):
        raise ProtocolError(f"{api.name} v{version}: a client id of {length} bytes with {len(buffer) - 10} bytes left")
    client_id = str(memoryview(buffer)[10:at], "utf-8", "replace")
    # A byte that is no UTF-8 becomes three, and a group's record, which names its members' clients, cannot hold it.
    if length > LONGEST // 3 and len(client_id.encode()) > LONGEST:
        raise ProtocolError(f"{api.name} v{version}: a client id of {length} bytes that is no UTF-8")
    if version >= api.flexible_from:
        if at < len(buffer) and buffer[at] == 0:  # nearly always there are none, and nothing needs a name
            at += 1
        else:
            at = _skip_tagged_fields(buffer, at, f"{api.name} v{version}: request header")
    return RequestHeader(key, version, correlation_id, client_id), at


def read_response_header(buffer: Buffer, api: Api, version: int) -> tuple[int, int]:
    """Read the header of a response to `api` in `version`: the correlation id and where the response begins."""
    if len(buffer) < 4:
        raise ProtocolError(f"a frame of {len(buffer)} bytes is too short for a response header")
    correlation_id = _INT32.unpack_from(buffer)[0]
    if _response_is_flexible(api, version):
        return correlation_id, _skip_tagged_fields(buffer, 4, f"{api.name} v{version}: response header")
    return correlation_id, 4


def request_frame(api: Api, version: int, correlation_id: int, client_id: str | None, message: Any) -> bytes:
    """Write a request with its size and header."""
    head = _REQUEST.pack(api.key, version, correlation_id)
    if api.key != _CONTROLLED_SHUTDOWN or version > 0:
        client = None if client_id is None else client_id.encode("utf-8", "replace")
        head += b"\xff\xff" if client is None else _INT16.pack(len(client)) + client
    if version >= api.flexible_from:
        head += NO_TAGGED_FIELDS
    return api.request_program(version).encode_frame(head, message)


def response_frame(api: Api, version: int, correlation_id: int, message: Any) -> bytes:
    """Write a response with its size and header."""
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
    if count > _MOST_TAGGED_FIELDS:
        raise ProtocolError(f"{where}: {count} tagged fields, and at most {_MOST_TAGGED_FIELDS} are read")
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
    raise ProtocolError(f"{where}: a varint at byte {at} goes on after 5 bytes")
