"""Converts messages of Kafka 0.7 to format 0, which readers of later formats understand.

They have no keys and no timestamps. A message's offset is its position in the log; all messages within a compressed
message have its position.
"""

from __future__ import annotations

from itertools import repeat

from kafkapy.record.kafka07 import Buffer, CorruptMessage, Message, iter_messages, messages_in
from kafkapy.record.legacy import build_set


def as_format_0(message: Message, offset: int) -> bytes:
    """Return a stored message, or all messages within a compressed one, in format 0. Raises CorruptMessage."""
    inner = ((-1, None, found.payload) for found in messages_in(message))
    return build_set(inner, 0, offsets=repeat(offset))


def later_set(buffer: Buffer, start: int) -> tuple[bytes, int]:
    """Convert the complete messages of a log read from position `start`; return them and the position after them.

    Stops before a damaged message; raises CorruptMessage if that is the first.
    """
    found, after = bytearray(), 0
    try:
        for message in iter_messages(buffer):
            found += as_format_0(message, start + message.position)
            after = message.end
    except CorruptMessage:
        if not after:
            raise
    return bytes(found), start + after
