"""Check a message set of Kafka 0.7 before it is stored, also inside compressed messages.

Source: Kafka 0.7.2's Log.append and ByteBufferMessageSet.
"""

from __future__ import annotations

from struct import unpack_from
from typing import NamedTuple

from kafkapy._ext import sets_07
from kafkapy._ext.sets_07 import InvalidSet, MessageTooLarge
from kafkapy.record.compression import SNAPPY, DecompressionError, RecordTooLarge, pieces
from kafkapy.record.kafka07 import CODEC_MASK, LENGTH, MAX_DEPTH, MAX_PAYLOAD, Buffer

__all__ = ["CheckedSet", "InvalidSet", "MessageTooLarge", "check_inner_sets", "check_set"]


class CheckedSet(NamedTuple):
    """A message set that may be stored: the first `size` bytes of what was checked.

    `messages` is the number of stored messages, `compressed` the positions of the compressed ones among them.
    """

    size: int
    messages: int
    compressed: list[int]


def check_set(data: Buffer, largest: int) -> CheckedSet:
    """Check the messages of a set, but not what is inside compressed ones: `check_inner_sets` does that.

    A message that is cut off at the end is left out. Raises InvalidSet, and MessageTooLarge if a payload has more than
    `largest` bytes.
    """
    return CheckedSet(*sets_07.check(data, largest))


def check_inner_sets(data: Buffer, checked: CheckedSet, limit: int = MAX_PAYLOAD) -> int:
    """Check the sets inside the compressed messages of a set, and return the number of uncompressed messages in it at
    all levels. Raises InvalidSet, also for more than `limit` bytes after decompression."""
    return _count(memoryview(data), checked, limit, 1)[0]


def _count(view: memoryview, checked: CheckedSet, left: int, depth: int) -> tuple[int, int]:
    """Check the sets inside the compressed messages of a set. Return the number of uncompressed messages in it at all
    levels, and how many of `left` bytes may still be decompressed."""
    count = checked.messages - len(checked.compressed)
    for position in checked.compressed:
        inner_count, left = _check_inner(view, position, left, depth)
        count += inner_count
    return count, left


def _check_inner(view: memoryview, position: int, left: int, depth: int) -> tuple[int, int]:
    """Check the set inside the compressed message at `position`. Return the number of uncompressed messages in it, and
    how many of `left` bytes may still be decompressed."""
    if depth > MAX_DEPTH:
        raise InvalidSet(position, f"compressed messages are nested more than {MAX_DEPTH} deep")
    length, _, attributes = unpack_from(">iBB", view, position)
    codec = attributes & CODEC_MASK
    if codec > SNAPPY:
        raise InvalidSet(position, f"codec {codec}, where Kafka 0.7 has 0, 1 and 2")
    payload = view[position + LENGTH + 6 : position + LENGTH + length]
    try:
        inner = b"".join(pieces(codec, payload, left))
    except RecordTooLarge:
        raise InvalidSet(position, "a compressed message unpacks to more than the limit") from None
    except DecompressionError as error:
        raise InvalidSet(position, f"a compressed message cannot be unpacked: {error}") from error
    left -= len(inner)
    try:
        checked = CheckedSet(*sets_07.check(inner, MAX_PAYLOAD))
        if checked.size < len(inner):
            raise InvalidSet(position, f"{len(inner) - checked.size} bytes are left over at the end of its set")
        return _count(memoryview(inner), checked, left, depth + 1)
    except InvalidSet as error:
        raise InvalidSet(position, f"in a compressed message: {error}") from error
