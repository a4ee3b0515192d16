"""The five requests of Kafka 0.7, and their responses.

A request is its type (int16), and for each partition: topic (int16 and bytes), partition (int32) and

    Produce 0, MultiProduce 3      the size of a message set (int32) and the set; no response
    Fetch 1, MultiFetch 2          offset (int64), max bytes (int32)
    Offsets 4                      time (int64), max offsets (int32)

MultiProduce and MultiFetch begin with the number of partitions (int16). Bytes after the request are ignored. Source:
kafka.api, kafka.server.MessageSetSend and MultiMessageSetSend of Kafka 0.7.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error, pack
from typing import NamedTuple

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)
NAMES = ("Produce", "Fetch", "MultiFetch", "MultiProduce", "Offsets")

_SHORT = Struct(">h")
_SET = Struct(">ii")
_FROM = Struct(">iqi")
_HEADER = Struct(">ih")


class BadRequest(Exception):
    """Raised for a request that is answered by closing the connection; the message says why."""


class ProducePart(NamedTuple):
    """A message set for one partition."""

    topic: str
    partition: int
    data: memoryview


class ReadPart(NamedTuple):
    """One partition of a Fetch or Offsets request. Fetch: at most `most` bytes from offset `at` on. Offsets: at most
    `most` offsets for the time `at`."""

    topic: str
    partition: int
    at: int
    most: int


def decode_request(frame: memoryview) -> tuple[int, list[ProducePart] | list[ReadPart]]:
    """Return the type of the request and its parts. Message sets are views of the frame. Raises BadRequest."""
    try:
        (kind,) = _SHORT.unpack_from(frame)
        if kind == PRODUCE:
            return kind, [_produce_part(frame, 2)[0]]
        if kind in (FETCH, OFFSETS):
            return kind, [_read_part(frame, 2)[0]]
        if kind in (MULTI_PRODUCE, MULTI_FETCH):
            return kind, _parts(kind, frame)
    except error:
        raise BadRequest(f"a request of {len(frame)} bytes ends too early") from None
    hint = ": perhaps a client of Kafka 0.8 or later, which belongs on a listener of 'listeners'" if kind > 4 else ""
    raise BadRequest(f"Kafka 0.7 has no request type {kind}{hint}")


def _parts(kind: int, frame: memoryview) -> list[ProducePart] | list[ReadPart]:
    (count,) = _SHORT.unpack_from(frame, 2)
    if count < 0:
        raise BadRequest(f"{NAMES[kind]} of {count} partitions")
    at = 4
    if kind == MULTI_PRODUCE:
        sets = []
        for _ in range(count):
            one_set, at = _produce_part(frame, at)
            sets.append(one_set)
        return sets
    reads = []
    for _ in range(count):
        one_read, at = _read_part(frame, at)
        reads.append(one_read)
    return reads


def _topic(frame: memoryview, at: int) -> tuple[str, int]:
    """Return the topic at this position, and the position after it. As in Java, invalid UTF-8 is replaced."""
    (length,) = _SHORT.unpack_from(frame, at)
    at += 2
    if length < 0:
        raise BadRequest("the name of a topic is null")
    return str(frame[at : at + length], "utf-8", "replace"), at + length


def _produce_part(frame: memoryview, at: int) -> tuple[ProducePart, int]:
    topic, at = _topic(frame, at)
    partition, size = _SET.unpack_from(frame, at)
    at += _SET.size
    if not 0 <= size <= len(frame) - at:
        raise BadRequest(f"it has a message set of {size} bytes, but only {len(frame) - at} bytes are left")
    return ProducePart(topic, partition, frame[at : at + size]), at + size


def _read_part(frame: memoryview, at: int) -> tuple[ReadPart, int]:
    topic, at = _topic(frame, at)
    return ReadPart(topic, *_FROM.unpack_from(frame, at)), at + _FROM.size


def encode_header(code: int, size: int) -> bytes:
    """Return the beginning of a response with `size` bytes after its error code. Raises BadRequest if the size does
    not fit into its field."""
    try:
        return _HEADER.pack(2 + size, code)
    except error:
        raise BadRequest(f"its response would have {size} bytes, more than an int32 can say") from None


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """Return the whole response to Offsets."""
    count = len(offsets)
    return encode_header(0, 4 + 8 * count) + pack(f">i{count}q", count, *offsets)


def name_of_request_07(frame: memoryview) -> str | None:
    """Return the name of the request if the frame is exactly one request of Kafka 0.7, None otherwise."""
    try:
        kind, parts = decode_request(frame)
    except BadRequest:
        return None
    size = 2 if kind in (PRODUCE, FETCH, OFFSETS) else 4
    for part in parts:
        if not part.topic or "\ufffd" in part.topic:
            return None
        rest = _SET.size + len(part.data) if isinstance(part, ProducePart) else _FROM.size
        size += 2 + len(part.topic.encode()) + rest
    return NAMES[kind] if parts and size == len(frame) else None
