"""Messages as Kafka 0.7 and older stored and sent them, before messages had offsets.

A message set is a sequence of messages, each preceded by its length (int32, not counting itself):

    magic 0 (before 0.7):  magic int8, CRC-32 uint32, payload
    magic 1 (0.7):         magic int8, attributes int8, CRC-32 uint32, payload

The CRC covers the payload only. The low two bits of the attributes are the codec: none, gzip, snappy. The payload of a
compressed message is a message set, whose messages may have either magic and may be compressed again. There are no keys
and no timestamps. A message's offset is the position of its length field in the log: the start offset in the segment's
name plus the position in the file. Inner messages have no offset: a consumer that stopped within a compressed message
resumes at its start. Source: `kafka.message.Message` and `ByteBufferMessageSet` of Kafka 0.7.2.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kafkapy.record.compression import NONE, SNAPPY, DecompressionError, RecordTooLarge, pieces

LENGTH = 4  # size of the length field, which the length does not include
SMALLEST = 5  # magic 0 with an empty payload; Kafka 0.7 treats a smaller length as the end of the file
HEADERS = (5, 6)  # bytes before the payload, by magic
CODEC_MASK = 0x03

# Limits for the decompressed bytes of one stored message over all levels, and for the nesting depth. Producers wrote
# one level; the limits only stop a malicious file from using up memory or the stack.
MAX_PAYLOAD = 1 << 30
MAX_DEPTH = 8

_LENGTH = Struct(">i")
_MAGIC_0 = Struct(">bI")
_MAGIC_1 = Struct(">bBI")

Buffer = bytes | bytearray | memoryview


class CorruptMessage(ValueError):
    """The error for bytes that are not a valid message of Kafka 0.7. `position` is where the message begins in the
    buffer."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class Message(NamedTuple):
    """A stored message of Kafka 0.7. `position` and `size` include the length field; `crc` is the stored checksum.

    `attributes` is 0 for magic 0, which has none. `payload` is a view of the buffer; for a compressed message it has
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
        """The compression codec: 0 none, 1 gzip, 2 snappy; 3 is undefined."""
        return self.attributes & CODEC_MASK

    @property
    def is_valid(self) -> bool:
        """True if the stored CRC matches the payload."""
        return zlib.crc32(self.payload) == self.crc

    @property
    def end(self) -> int:
        """The position after this message, where the next one begins."""
        return self.position + self.size


def read_message(buffer: Buffer, position: int = 0) -> Message | None:
    """Return the message at `position`, or None if it is incomplete. Raises CorruptMessage for an invalid length or
    magic; the CRC is not checked."""
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
    """Yield the messages from `position` on, and stop at an incomplete message. Raises CorruptMessage as `read_message`
    does."""
    view = memoryview(buffer)
    while (message := read_message(view, position)) is not None:
        yield message
        position = message.end


def messages_in(message: Message, limit: int = MAX_PAYLOAD) -> Iterator[Message]:
    """Yield the message itself, or for a compressed message all uncompressed messages in it, at any depth of nesting.

    Checks every CRC. Raises CorruptMessage with the position of `message` for an error at any depth, and for more than
    `limit` decompressed bytes.
    """
    try:
        yield from _unpack(message, _Budget(limit), 1)
    except CorruptMessage as error:
        raise CorruptMessage(message.position, str(error)) from error


def payloads_of(message: Message, limit: int = MAX_PAYLOAD) -> list[bytes]:
    """Return the payloads of the messages that `messages_in` yields, and raise the same errors. Faster than
    `messages_in` for an uncompressed message."""
    if message.attributes & CODEC_MASK == NONE and zlib.crc32(message.payload) == message.crc:
        return [bytes(message.payload)]
    return [bytes(inner.payload) for inner in messages_in(message, limit)]


class _Budget:
    """Counts down the bytes that may still be decompressed from one stored message, over all levels of nesting."""

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
        raise CorruptMessage(message.position, f"compressed messages are nested more than {MAX_DEPTH} deep")
    inner = _decompress(message, budget, where)
    position = 0
    for inner_message in iter_messages(inner):
        position = inner_message.end
        yield from _unpack(inner_message, budget, depth + 1)
    if position < len(inner):
        left = len(inner) - position
        raise CorruptMessage(message.position, f"{where} has {left} bytes left over at the end of its set")


def _decompress(message: Message, budget: _Budget, where: str) -> bytes:
    try:
        inner = b"".join(pieces(message.codec, message.payload, budget.left))
    except RecordTooLarge:
        raise CorruptMessage(message.position, f"{where} unpacks to more than the limit") from None
    except DecompressionError as error:
        raise CorruptMessage(message.position, f"{where} cannot be unpacked: {error}") from error
    budget.left -= len(inner)
    return inner


def build_message(payload: bytes, *, magic: int = 1, codec: int = NONE) -> bytes:
    """Return one message of Kafka 0.7 with its length field, as stored and sent. With a codec, `payload` must already
    be compressed."""
    crc = zlib.crc32(payload)
    head = _MAGIC_0.pack(0, crc) if magic == 0 else _MAGIC_1.pack(1, codec, crc)
    return _LENGTH.pack(len(head) + len(payload)) + head + payload
