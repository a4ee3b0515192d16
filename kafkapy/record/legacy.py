"""Messages of formats 0 and 1 (Kafka 0.8 to 0.10), and log entries of any format.

A log entry is a batch of format 2, a message of format 0 or 1, or a compressed wrapper of such messages; a log may mix
them. `read_entry` and `iter_entries` return a BatchHeader or a MessageHeader, which have the same main attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from kafkapy._ext import entries
from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_sets import decode_message, decode_set, wrapper_value
from kafkapy._ext.message_sets import find_timestamp as _find_in_set
from kafkapy._ext.message_writer import MessagesEncoder, wrap
from kafkapy._ext.records import CorruptRecords
from kafkapy.record.compression import NAMES, NONE, ZSTD, compress, decompress
from kafkapy.record.records import MAX_PAYLOAD, Buffer, Record

Entry: TypeAlias = BatchHeader | MessageHeader


def read_entry(buffer: Buffer, position: int = 0) -> Entry:
    """Return the header of the entry at `position`. Raises CorruptBatch, UnsupportedMagic."""
    return entries.read_entry(buffer, position)


def iter_entries(buffer: Buffer, start: int = 0) -> Iterator[Entry]:
    """Yield the headers of entries from position `start` on, and stop at an incomplete entry. Raises CorruptBatch,
    UnsupportedMagic."""
    return entries.iter_entries(buffer, start)


def check(buffer: Buffer, header: Entry) -> Entry:
    """Return the header if its entry is complete and has the correct checksum. Raises CorruptBatch otherwise."""
    return entries.check_entry(buffer, header.position)


def set_of(buffer: Buffer, header: MessageHeader, limit: int = MAX_PAYLOAD) -> bytes:
    """Return the decompressed message set of a compressed wrapper. Raises DecompressionError, CorruptRecords."""
    if header.codec >= ZSTD:
        name = NAMES[ZSTD] if header.codec == ZSTD else f"codec {header.codec}"
        raise CorruptRecords(f"a message of format {header.magic} cannot be compressed with {name}")
    start, end = wrapper_value(buffer, header)
    return decompress(header.codec, memoryview(buffer)[start:end], limit, broken_checksum=header.magic == 0)


def messages_of(buffer: Buffer, header: MessageHeader, limit: int = MAX_PAYLOAD) -> list[Record]:
    """Return the messages of an entry as a consumer gets them, with absolute offsets and final timestamps: a list of
    the message itself, or of all messages in a compressed wrapper.

    Raises DecompressionError, CorruptRecords (both ValueError).
    """
    if header.codec == NONE:
        return [decode_message(buffer, header, Record)]
    return decode_set(set_of(buffer, header, limit), header, Record)


def find_timestamp(
    buffer: Buffer, header: MessageHeader, timestamp: int, min_offset: int = 0, limit: int = MAX_PAYLOAD
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first message in the entry with at least this timestamp and offset, or None if
    there is no such message."""
    if header.codec == NONE:
        found = header.timestamp >= timestamp and header.offset >= min_offset
        return (header.offset, header.timestamp) if found else None
    return _find_in_set(set_of(buffer, header, limit), header, timestamp, min_offset)


def build_set(
    records: Iterable[tuple[int, Buffer | None, Buffer | None]],
    magic: int,
    codec: int = NONE,
    *,
    base_offset: int = 0,
    offsets: Iterable[int] | None = None,
    timestamp_type: int = 0,
    append_time: int = -1,
    level: int | None = None,
) -> bytes:
    """Return a message set of (timestamp, key, value) records, as Kafka 3.9's MemoryRecordsBuilder writes it.

    Without a codec, the messages follow one another; with a codec, they are in one wrapper. `offsets` are the offsets
    of the records, by default consecutive from `base_offset`; offsets in a wrapper of format 1 are relative to the
    first. With timestamp_type 1, every message has the timestamp `append_time`. Format 0 has no timestamps. Without
    records, the result is empty.
    """
    if codec >= ZSTD:
        raise ValueError(f"a message of format {magic} cannot be compressed with {NAMES[codec]}")
    encoder = MessagesEncoder(magic, timestamp_type)
    given = None if offsets is None else iter(offsets)
    first = offset = base_offset
    for number, (timestamp, key, value) in enumerate(records):
        offset = base_offset + number if given is None else next(given)
        if number == 0:
            first = offset
        stored = offset - first if magic and codec else offset
        encoder.append(stored, append_time if timestamp_type else timestamp, key, value)
    if not encoder.count or codec == NONE:
        return encoder.payload()
    packed = compress(codec, encoder.payload(), level, broken_checksum=magic == 0)
    stamp = append_time if timestamp_type else encoder.max_timestamp
    return wrap(packed, magic, codec, offset, stamp, timestamp_type)
