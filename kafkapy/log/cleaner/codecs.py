"""Entries that are compressed: getting their payload out, and what remains of it back in."""

from __future__ import annotations

from kafkapy._ext.batch import HEADER
from kafkapy._ext.cursor import Writer
from kafkapy._ext.entries import read_entry
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_sets import wrapper_value
from kafkapy.record.compression import compress, pieces


def unpack(buffer: memoryview, position: int, into: Writer, limit: int) -> None:
    """Decompresses the records of the entry at `position`, piece by piece; never more than `limit` bytes.

    Raises DecompressionError, RecordTooLarge, and ValueError where a wrapper is none.
    """
    header = read_entry(buffer, position)
    if isinstance(header, MessageHeader):
        begin, end = wrapper_value(buffer, header)
    else:
        begin, end = position + HEADER, position + header.size
    into.clear()
    for piece in pieces(header.codec, buffer[begin:end], limit, broken_checksum=header.magic == 0):
        into.write_bytes(piece)


def pack(buffer: memoryview, position: int, payload: Writer) -> bytes:
    """Compresses a payload as the entry at `position` is, at the codec's usual level as Kafka's cleaner does."""
    header = read_entry(buffer, position)
    with memoryview(payload) as view:
        return compress(header.codec, view, broken_checksum=header.magic == 0)
