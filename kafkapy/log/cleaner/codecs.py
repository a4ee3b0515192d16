"""Decompress the payload of a compressed entry, and compress the records that are kept."""

from __future__ import annotations

from kafkapy._ext.batch import HEADER
from kafkapy._ext.cursor import Writer
from kafkapy._ext.entries import read_entry
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_sets import wrapper_value
from kafkapy.record.compression import compress, pieces


def unpack(buffer: memoryview, position: int, into: Writer, limit: int) -> None:
    """Decompress the records of the entry at `position` into `into`, piece by piece, `limit` bytes at most.

    Raises DecompressionError, RecordTooLarge, and ValueError if a wrapper message of format 0 or 1 is malformed.
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
    """Return the payload, compressed with the codec of the entry at `position` at its default level, as Kafka does."""
    header = read_entry(buffer, position)
    with memoryview(payload) as view:
        return compress(header.codec, view, broken_checksum=header.magic == 0)
