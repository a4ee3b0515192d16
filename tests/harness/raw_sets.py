"""Message sets of formats 0 and 1, and requests with them, built byte by byte, like those of clients before Kafka 0.11.

Like `raw`, this module shares no code with kafkapy.
"""

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from .raw import CREATE_TOPICS, FETCH, GZIP, LIST_OFFSETS, PRODUCE, Connection, array, string

APPEND_TIME = 8


def message(
    value: bytes | None,
    *,
    key: bytes | None = None,
    offset: int = 0,
    magic: int = 0,
    timestamp: int = -1,
    attributes: int = 0,
    crc: int | None = None,
    size: int | None = None,
) -> bytes:
    """Encode a message with its offset and size. `crc` and `size` can be set to wrong values."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    body = struct.pack(">I", zlib.crc32(body) if crc is None else crc) + body
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


def gzipped(
    messages: Sequence[bytes], *, offset: int, magic: int = 0, timestamp: int = -1, attributes: int = 0
) -> bytes:
    """Encode a wrapper message. `offset` is that of its last message, `timestamp` the largest."""
    value = gzip.compress(b"".join(messages), mtime=0)
    return message(value, offset=offset, magic=magic, timestamp=timestamp, attributes=attributes | GZIP)


class Found(NamedTuple):
    """A message in a response. Its timestamp is None in format 0."""

    offset: int
    magic: int
    attributes: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def read_set(data: bytes) -> tuple[list[Found], bytes]:
    """Return (complete messages, with verified checksums, bytes after them, which are a part of another message)."""
    found = []
    at = 0
    while len(data) - at >= 12:
        offset, size = struct.unpack_from(">qi", data, at)
        if size > len(data) - at - 12:
            break
        body = data[at + 12 : at + 12 + size]
        crc, magic, attributes = struct.unpack_from(">Ibb", body)
        assert crc == zlib.crc32(body[4:]), f"a wrong checksum at offset {offset}"
        fields = 14 if magic else 6
        key, fields = _bytes(body, fields)
        value, end = _bytes(body, fields)
        assert end == len(body)
        timestamp = struct.unpack_from(">q", body, 6)[0] if magic else None
        found.append(Found(offset, magic, attributes, timestamp, key, value))
        at += 12 + size
    return found, data[at:]


def deep(messages: Sequence[Found]) -> list[Found]:
    """Return the messages, unpacked from gzip wrappers, with the offsets and timestamps that a consumer computes."""
    out = []
    for one in messages:
        codec = one.attributes & 7
        if not codec:
            out.append(one)
            continue
        assert codec == GZIP
        inner, rest = read_set(gzip.decompress(one.value or b""))
        assert inner
        assert not rest
        base = one.offset - inner[-1].offset if one.magic else 0
        for each in inner:
            stamp = one.timestamp if one.attributes & APPEND_TIME else each.timestamp
            out.append(each._replace(offset=base + each.offset, timestamp=stamp))
    return out


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", body, at)
    at += 4
    return (None, at) if size < 0 else (body[at : at + size], at + size)


class OldConnection(Connection):
    """The requests of clients before 0.11 on one connection."""

    def make_topic(self, name: str, **settings: str) -> None:
        """Create a topic of one partition, with settings (underscores for dots)."""
        configs = [string(key.replace("_", ".")) + string(value) for key, value in settings.items()]
        topic = string(name) + struct.pack(">ih", 1, 1) + array([]) + array(configs)
        answer = self.ask(CREATE_TOPICS, 2, array([topic]) + struct.pack(">ib", 20_000, 0))
        (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name.encode()))
        assert code == 0, f"{name} was not made: {code}"

    def produce_set(
        self, topic: str, records: bytes, *, version: int, partition: int = 0, acks: int = 1
    ) -> tuple[int, int, int | None, int | None]:
        """Send Produce v0 to v2. Return (error code, base offset, append time or None, throttle time or None)."""
        part = struct.pack(">ii", partition, len(records)) + records
        body = struct.pack(">hi", acks, 10_000) + array([string(topic) + array([part])])
        answer = self.ask(PRODUCE, version, body)
        at = 4 + 2 + len(topic.encode()) + 4
        index, code, base = struct.unpack_from(">ihq", answer, at)
        assert index == partition
        at += 14
        append_time = throttle = None
        if version >= 2:
            (append_time,) = struct.unpack_from(">q", answer, at)
            at += 8
        if version >= 1:
            (throttle,) = struct.unpack_from(">i", answer, at)
            at += 4
        assert at == len(answer)
        return code, base, append_time, throttle

    def fetch_body(
        self,
        topic: str,
        offset: int,
        *,
        version: int,
        partition: int = 0,
        max_bytes: int = 1 << 20,
        all_bytes: int = 64 << 20,
        wait_ms: int = 0,
        min_bytes: int = 0,
    ) -> bytes:
        one = struct.pack(">iqi", partition, offset, max_bytes)
        body = struct.pack(">iii", -1, wait_ms, min_bytes)
        if version >= 3:
            body += struct.pack(">i", all_bytes)
        return body + array([string(topic) + array([one])])

    def fetch_set(self, topic: str, offset: int, *, version: int, **limits: int) -> tuple[int, int, bytes]:
        """Send Fetch v0 to v3. Return (error code, high watermark, message set)."""
        answer = self.ask(FETCH, version, self.fetch_body(topic, offset, version=version, **limits))
        at = (4 if version >= 1 else 0) + 4 + 2 + len(topic.encode()) + 4
        index, code, high, size = struct.unpack_from(">ihqi", answer, at)
        assert index == limits.get("partition", 0)
        data = answer[at + 18 :]
        assert len(data) == max(size, 0)  # Kafka sends -1 with an error
        return code, high, data

    def offset_of(self, topic: str, timestamp: int) -> tuple[int, int, int]:
        """Send ListOffsets v1. Return (error code, timestamp, offset)."""
        one = struct.pack(">iq", 0, timestamp)
        answer = self.ask(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string(topic) + array([one])]))
        index, code, stamp, offset = struct.unpack_from(">ihqq", answer, 4 + 2 + len(topic.encode()) + 4)
        assert index == 0
        return code, stamp, offset

    def largest_time(self, topic: str) -> tuple[int, int, int]:
        """Send ListOffsets v7, a flexible version, with timestamp -3. Return (error code, timestamp, offset)."""
        name = bytes([len(topic) + 1]) + topic.encode()
        body = b"\0" + struct.pack(">ib", -1, 0) + b"\2" + name + b"\2" + struct.pack(">iiq", 0, -1, -3) + b"\0\0\0"
        answer = self.ask(LIST_OFFSETS, 7, body)
        index, code, stamp, offset = struct.unpack_from(">ihqq", answer, 1 + 4 + 1 + len(name) + 1)
        assert index == 0
        return code, stamp, offset

    def segment_offsets(self, topic: str, timestamp: int, count: int, *, replica: int = -1) -> tuple[int, list[int]]:
        """Send ListOffsets v0. Return (error code, offsets)."""
        one = struct.pack(">iqi", 0, timestamp, count)
        answer = self.ask(LIST_OFFSETS, 0, struct.pack(">i", replica) + array([string(topic) + array([one])]))
        at = 4 + 2 + len(topic.encode()) + 4
        index, code, found = struct.unpack_from(">ihi", answer, at)
        assert index == 0
        offsets = list(struct.unpack_from(f">{found}q", answer, at + 10))
        assert at + 10 + 8 * found == len(answer)
        return code, offsets
