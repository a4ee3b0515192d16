"""Requests built byte by byte, also invalid ones, without code of kafkapy's protocol modules."""

import socket
import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any

import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
GZIP = 1
NOT_LEADER_OR_FOLLOWER = 6


def string(text: str | None) -> bytes:
    """Encode a string with a 16-bit length. None is the null string."""
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def array(items: Sequence[bytes]) -> bytes:
    """Encode an array with a 32-bit count."""
    return struct.pack(">i", len(items)) + b"".join(items)


def varint(value: int) -> bytes:
    """Encode a zig-zag varint."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record(number: int, value: bytes, *, length: int | None = None, value_length: int | None = None) -> bytes:
    """Encode a record of a batch, without key and headers. The lengths can be set to wrong values."""
    size = len(value) if value_length is None else value_length
    body = b"\0" + varint(0) + varint(number) + varint(-1) + varint(size) + value + varint(0)
    return varint(len(body) if length is None else length) + body


def batch(records: Sequence[bytes], *, codec: int = 0, **other: Any) -> bytes:
    """Encode a valid record batch of format 2, except for the fields in `other`: count, last_delta, magic, size, crc,
    attributes, body."""
    body = other.get("body", b"".join(records))
    if codec == GZIP and "body" not in other:
        body = zlib.compress(body, 9, wbits=31)
    count = len(records)
    after_crc = struct.pack(
        ">hiqqqhii",
        other.get("attributes", codec),
        other.get("last_delta", count - 1),
        1_800_000_000_000,
        1_800_000_000_000,
        -1,
        -1,
        -1,
        other.get("count", count),
    )
    after_crc += body
    crc = other.get("crc", crc32c.crc32c(after_crc))
    size = other.get("size", 9 + len(after_crc))
    return struct.pack(">qiibI", 0, size, -1, other.get("magic", 2), crc) + after_crc


def values(*each: bytes) -> bytes:
    """Encode a valid batch of these values."""
    return batch([record(number, value) for number, value in enumerate(each)])


def frame(api: int, version: int, body: bytes, *, correlation: int = 7, client: str | None = "raw") -> bytes:
    """Encode a whole request with a header of version 1."""
    inside = struct.pack(">hhi", api, version, correlation) + string(client) + body
    return struct.pack(">i", len(inside)) + inside


def produce_body(topic: str, partition: int, records: bytes, *, acks: int = -1, size: int | None = None) -> bytes:
    """Encode a Produce request of version 3. `size` is a wrong length of the records."""
    data = struct.pack(">ii", partition, len(records) if size is None else size) + records
    return string(None) + struct.pack(">hi", acks, 10_000) + array([string(topic) + array([data])])


class Connection:
    """A socket to a broker, which splits the stream into responses. `source` is the client's own address."""

    def __init__(self, bootstrap: str, source: str | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        own = None if source is None else (source, 0)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), 20, own)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> bytes:
        """Return the next response without size and correlation id."""
        (size,) = struct.unpack(">i", self._read(4))
        body = self._read(size)
        assert body[:4] == struct.pack(">i", 7), "an answer to another request"
        return body[4:]

    def _read(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            assert more, f"the broker closed the connection after {len(got)} of {count} bytes"
            got += more
        return bytes(got)

    def is_closed_by_broker(self) -> bool:
        """Return True if the broker closes the connection without a response, False if it responds, or after 20 s."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        self.send(frame(api, version, body))
        return self.answer()

    def produce(self, topic: str, partition: int, records: bytes, *, version: int = 3) -> tuple[int, int]:
        """Send a Produce request of version 3 to 8 with acks=all. Return (error code, base offset)."""
        answer = self.ask(PRODUCE, version, produce_body(topic, partition, records))
        at = 4 + 2 + len(topic.encode()) + 4
        index, code, base = struct.unpack_from(">ihq", answer, at)
        assert index == partition
        return code, base

    def fetch(self, topic: str, partition: int, offset: int) -> tuple[int, int, bytes]:
        """Send a Fetch request of version 4 that does not wait. Return (error code, high watermark, records)."""
        one = struct.pack(">iqi", partition, offset, 64 << 20)
        body = struct.pack(">iiiib", -1, 0, 0, 64 << 20, 0) + array([string(topic) + array([one])])
        answer = self.ask(FETCH, 4, body)
        at = 4 + 4 + 2 + len(topic.encode()) + 4
        index, code, high, _stable, aborted = struct.unpack_from(">ihqqi", answer, at)
        assert index == partition
        at += 26 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        return code, high, answer[at + 4 : at + 4 + max(size, 0)]

    def end_offset(self, topic: str, partition: int) -> tuple[int, int]:
        """Send ListOffsets of version 1. Return (error code, offset after the last record)."""
        one = struct.pack(">iq", partition, -1)
        answer = self.ask(LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string(topic) + array([one])]))
        _, code, _, offset = struct.unpack_from(">ihqq", answer, 4 + 2 + len(topic.encode()) + 4)
        return code, offset

    def wait_until_served(self, topic: str, partition: int = 0) -> None:
        """Wait until the partition can be read. At a start, a broker listens while it is still loading its logs."""
        deadline = time.monotonic() + 20
        while self.end_offset(topic, partition)[0] == NOT_LEADER_OR_FOLLOWER:
            assert time.monotonic() < deadline, f"{topic}-{partition} is still being loaded"
            time.sleep(0.01)

    def create_topic(self, name: str, partitions: int = 1) -> int:
        """Send CreateTopics of version 2. Return the error code."""
        topic = string(name) + struct.pack(">ih", partitions, 1) + array([]) + array([])
        answer = self.ask(CREATE_TOPICS, 2, array([topic]) + struct.pack(">ib", 20_000, 0))
        (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name.encode()))
        return int(code)
