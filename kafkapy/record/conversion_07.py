"""Converts messages of Kafka 0.7 to format 0, which readers of later formats understand.

Messages of Kafka 0.7 have no keys and no timestamps. A message's offset is its position in the log; all messages within
a compressed message get the position of the compressed message.
"""

from __future__ import annotations

from itertools import repeat

from kafkapy.record.kafka07 import Buffer, CorruptMessage, Message, iter_messages, messages_in
from kafkapy.record.legacy import build_set


def as_format_0(message: Message, offset: int) -> bytes:
    """Return a message of Kafka 0.7, or all messages within a compressed one, in format 0 with this offset. Raises
    CorruptMessage."""
    inner = ((-1, None, found.payload) for found in messages_in(message))
    return build_set(inner, 0, offsets=repeat(offset))


def later_set(buffer: Buffer, start: int) -> tuple[bytes, int]:
    """Convert the complete messages of Kafka 0.7 in `buffer` to format 0. Return them and the log position after the
    last one.

    `start` is the log position of the buffer's first byte. Conversion stops before a damaged message; raises
    CorruptMessage if the first message is damaged.
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
