"""Decompress the records of a compressed batch or wrapper message, and compress the records that the cleaner keeps."""

from __future__ import annotations

from kafkapy._ext.batch import HEADER
from kafkapy._ext.cursor import Writer
from kafkapy._ext.entries import read_entry
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_sets import wrapper_value
from kafkapy.record.compression import compress, pieces


def unpack(buffer: memoryview, position: int, into: Writer, limit: int) -> None:
    """Replace the content of `into` by the decompressed records of the batch or wrapper message at `position`.

    Raises RecordTooLarge if the records have more than `limit` bytes, DecompressionError, and ValueError if a wrapper
    message of format 0 or 1 is malformed.
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
    """Return the records in `payload` in compressed form.

    The codec is that of the batch or wrapper message at `position` of `buffer`, at its default level, as in Kafka.
    """
    header = read_entry(buffer, position)
    with memoryview(payload) as view:
        return compress(header.codec, view, broken_checksum=header.magic == 0)
