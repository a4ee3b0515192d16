"""Messages as Kafka 0.7 and older stored and sent them, before messages had offsets of their own.

A message set is messages one behind the other, each with a length (int32, which does not count itself) in front:

    magic 0 (before 0.7):  magic int8, CRC-32 uint32, payload
    magic 1 (0.7):         magic int8, attributes int8, CRC-32 uint32, payload

The CRC is over the payload alone. The low two bits of the attributes are the codec: none, gzip, snappy. The payload of
a compressed message is a message set, which may hold messages of either magic and compressed ones again. There are no
keys and no timestamps. The offset of a message is the position of its length field in the log: the start offset in
its segment's name plus the position in the file. Inner messages have none: a consumer in the middle of a compressed
one goes on at that one's start. Source: `kafka.message.Message` and `ByteBufferMessageSet` of Kafka 0.7.2.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafkapy.record.compression import NONE, SNAPPY, DecompressionError, RecordTooLarge, pieces

LENGTH = 4  # the length field, which the length does not count
SMALLEST = 5  # magic 0 with an empty payload; Kafka 0.7 takes a shorter length for the end of the file
HEADERS = (5, 6)  # bytes before the payload, by magic
CODEC_MASK = 0x03

# What one stored message may unpack to, over all levels, and how deep it may be nested. Producers made one level; the
# limits only keep a hostile file from eating all memory or the stack.
MAX_PAYLOAD = 1 << 30
MAX_DEPTH = 8

_LENGTH = Struct(">i")
_MAGIC_0 = Struct(">bI")
_MAGIC_1 = Struct(">bBI")

Buffer = bytes | bytearray | memoryview


class CorruptMessage(ValueError):
    """Bytes that are no message of Kafka 0.7, or one that contradicts itself. `position`: where in the buffer."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class Message(NamedTuple):
    """A stored message. `position`, `size`: of the whole in its buffer, length field included; `crc` as stored.

    `attributes` is 0 with magic 0, which has none. `payload` is a view of the buffer; of a compressed message it is
    the compressed bytes.
    """

    position: int
    size: int
    magic: int
    attributes: int
    crc: int
    payload: memoryview

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy; 3 was never given a meaning."""
        return self.attributes & CODEC_MASK

    @property
    def is_valid(self) -> bool:
        """Whether the CRC is that of the payload."""
        return zlib.crc32(self.payload) == self.crc

    @property
    def end(self) -> int:
        """Where the next message begins."""
        return self.position + self.size


def read_message(buffer: Buffer, position: int = 0) -> Message | None:
    """The message at `position`; None if the buffer ends before it does. Raises CorruptMessage, but not for a CRC."""
    view = memoryview(buffer)
    left = len(view) - position - LENGTH
    if left < 0:
        return None
    (length,) = _LENGTH.unpack_from(view, position)
    if length < SMALLEST:
        raise CorruptMessage(position, f"a length of {length} bytes, where the smallest message has {SMALLEST}")
    if left == 0:
        return None
    start = position + LENGTH
    magic = view[start]
    if magic >= len(HEADERS):
        raise CorruptMessage(position, f"magic {magic}, where Kafka 0.7 has 0 and 1")
    if length < HEADERS[magic]:
        raise CorruptMessage(position, f"a length of {length} bytes, too few for a message with magic {magic}")
    if length > left:
        return None
    attributes = 0
    if magic == 0:
        _, crc = _MAGIC_0.unpack_from(view, start)
    else:
        _, attributes, crc = _MAGIC_1.unpack_from(view, start)
    return Message(position, LENGTH + length, magic, attributes, crc, view[start + HEADERS[magic] : start + length])


def iter_messages(buffer: Buffer, position: int = 0) -> Iterator[Message]:
    """The messages from `position` on; ends where the buffer does, in the middle of a message too."""
    view = memoryview(buffer)
    while (message := read_message(view, position)) is not None:
        yield message
        position = message.end


def messages_in(message: Message, limit: int = MAX_PAYLOAD) -> Iterator[Message]:
    """What a consumer gets for a stored message: itself, or the uncompressed messages in it, at any depth.

    Checks every CRC. Raises CorruptMessage, with the position of `message`, for whatever is wrong at any level, and
    for more than `limit` unpacked bytes.
    """
    try:
        yield from _unpack(message, _Budget(limit), 1)
    except CorruptMessage as error:
        raise CorruptMessage(message.position, str(error)) from error


def payloads_of(message: Message, limit: int = MAX_PAYLOAD) -> list[bytes]:
    """The payloads of `messages_in`, faster where the message is not compressed."""
    if message.attributes & CODEC_MASK == NONE and zlib.crc32(message.payload) == message.crc:
        return [bytes(message.payload)]
    return [bytes(one.payload) for one in messages_in(message, limit)]


class _Budget:
    """What may still be unpacked."""

    def __init__(self, limit: int) -> None:
        self.left = limit


def _unpack(message: Message, budget: _Budget, depth: int) -> Iterator[Message]:
    where = "the message" if depth == 1 else "a message in it"
    if not message.is_valid:
        computed = zlib.crc32(message.payload)
        raise CorruptMessage(message.position, f"{where} has CRC {message.crc}, its payload {computed}")
    if message.codec == NONE:
        yield message
        return
    if message.codec > SNAPPY:
        raise CorruptMessage(message.position, f"{where} has codec {message.codec}, where Kafka 0.7 has 0, 1 and 2")
    if depth > MAX_DEPTH:
        raise CorruptMessage(message.position, f"compressed messages in each other, more than {MAX_DEPTH} deep")
    inner = _decompress(message, budget, where)
    position = 0
    for one in iter_messages(inner):
        position = one.end
        yield from _unpack(one, budget, depth + 1)
    if position < len(inner):
        left = len(inner) - position
        raise CorruptMessage(message.position, f"{where} has {left} bytes left over at the end of its set")


def _decompress(message: Message, budget: _Budget, where: str) -> bytes:
    try:
        inner = b"".join(pieces(message.codec, message.payload, budget.left))
    except RecordTooLarge:
        raise CorruptMessage(message.position, f"{where} unpacks to more than is allowed") from None
    except DecompressionError as error:
        raise CorruptMessage(message.position, f"{where} cannot be unpacked: {error}") from error
    budget.left -= len(inner)
    return inner


def build_message(payload: bytes, *, magic: int = 1, codec: int = NONE) -> bytes:
    """One message with its length, as it is stored and sent; with a codec, `payload` is compressed already."""
    crc = zlib.crc32(payload)
    head = _MAGIC_0.pack(0, crc) if magic == 0 else _MAGIC_1.pack(1, codec, crc)
    return _LENGTH.pack(len(head) + len(payload)) + head + payload
