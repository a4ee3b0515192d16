"""Messages of Kafka 0.7 as messages of format 0, which whatever reads later formats can take.

They have no keys and no timestamps. The offset of a message is its position in the log, and all messages of a
compressed one have the position of that.
"""

from __future__ import annotations

from itertools import repeat

from kafkapy.record.kafka07 import Buffer, CorruptMessage, Message, iter_messages, messages_in
from kafkapy.record.legacy import build_set


def as_format_0(message: Message, offset: int) -> bytes:
    """A stored message, or all in it when it is compressed. Raises CorruptMessage."""
    inner = ((-1, None, one.payload) for one in messages_in(message))
    return build_set(inner, 0, offsets=repeat(offset))


def later_set(buffer: Buffer, start: int) -> tuple[bytes, int]:
    """The whole messages of what is in a log from position `start` on, and the position behind them.

    Ends before a message that is damaged; raises CorruptMessage when that is the first.
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
