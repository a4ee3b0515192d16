"""Reads and builds record batches as Python objects, for clients and tools.

The broker itself never creates an object for a record (see kafkapy._ext.validation). The functions take the header of
an entry: a batch, a message of an older format, or a compressed wrapper of such messages.
kafkapy.record.legacy.read_entry reads headers of all kinds, kafkapy._ext.batch only those of batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkapy._ext import batch as _batch
from kafkapy._ext.batch import BatchHeader
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.record_writer import RecordsEncoder
from kafkapy._ext.records import decode_records
from kafkapy._ext.records import find_timestamp as _find_timestamp
from kafkapy.record import legacy
from kafkapy.record.compression import NONE, compress, decompress
from kafkapy.record.records import MAX_PAYLOAD, Buffer, Headers, Record

APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def payload_of(buffer: Buffer, header: BatchHeader | MessageHeader, limit: int = MAX_PAYLOAD) -> Buffer:
    """Return the decompressed payload of an entry: the records of a batch, the message set of a wrapper, or for a
    single uncompressed message the message itself.

    Raises DecompressionError, also beyond `limit` bytes; for a wrapper also CorruptRecords.
    """
    if isinstance(header, MessageHeader):
        if header.codec != NONE:
            return legacy.set_of(buffer, header, limit)
        return memoryview(buffer)[header.position : header.next_position]
    view = memoryview(buffer)[header.position + _batch.HEADER : header.position + header.size]
    if header.codec == NONE:
        return view
    return decompress(header.codec, view, limit)


def records_of(buffer: Buffer, header: BatchHeader | MessageHeader, limit: int = MAX_PAYLOAD) -> list[Record]:
    """Return all records of an entry: a batch, a message or a wrapper. Raises DecompressionError or CorruptRecords
    (both ValueError)."""
    if isinstance(header, MessageHeader):
        return legacy.messages_of(buffer, header, limit)
    return decode_records(payload_of(buffer, header, limit) if header.count else b"", header, Record)


def find_timestamp(
    buffer: Buffer,
    header: BatchHeader | MessageHeader,
    timestamp: int,
    min_offset: int = 0,
    limit: int = MAX_PAYLOAD,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record in the entry with at least this timestamp and offset, or None if
    there is no such record."""
    if isinstance(header, MessageHeader):
        return legacy.find_timestamp(buffer, header, timestamp, min_offset, limit)
    return _find_timestamp(payload_of(buffer, header, limit), header, timestamp, min_offset) if header.count else None


class BatchBuilder:
    """Builds a batch from records.

    max_bytes: the size limit of the batch before compression, header included; `append` returns False instead of
    exceeding it, but always accepts the first record. base_timestamp: the base timestamp of the batch, by default the
    timestamp of the first record.
    """

    def __init__(
        self, codec: int = NONE, max_bytes: int | None = None, *, base_timestamp: int | None = None, room: int = 1024
    ) -> None:
        self.codec = codec
        self.max_bytes = max_bytes
        self._records = RecordsEncoder(base_timestamp, room)

    @property
    def count(self) -> int:
        """The number of records appended so far."""
        return self._records.count

    @property
    def size(self) -> int:
        """The size of the batch so far in bytes: header and records, before compression."""
        return _batch.HEADER + self._records.size

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
        *,
        offset_delta: int | None = None,
    ) -> bool:
        """Add a record and return True, or return False if the batch is full. offset_delta: by default the previous
        record's plus 1."""
        if self.max_bytes is not None and self.count:
            headers = tuple(headers)
            most = 36 + len(key or b"") + len(value or b"")
            most += sum(10 + 4 * len(name) + len(content or b"") for name, content in headers)
            if self.size + most > self.max_bytes:
                return False
        self._records.append(timestamp, key, value, headers, offset_delta)
        return True

    def build(
        self,
        *,
        base_offset: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
        timestamp_type: int = 0,
        max_timestamp: int | None = None,
        last_offset_delta: int | None = None,
        delete_horizon: bool = False,
        level: int | None = None,
    ) -> bytes:
        """Return the encoded batch. max_timestamp and last_offset_delta default to those of the records."""
        records = self._records
        attributes = self.codec | (APPEND_TIME if timestamp_type else 0)
        attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        attributes |= DELETE_HORIZON if delete_horizon else 0
        return _batch.assemble(
            compress(self.codec, records.payload(), level) if records.count else b"",
            count=records.count,
            attributes=attributes,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            last_offset_delta=records.last_offset_delta if last_offset_delta is None else last_offset_delta,
            base_timestamp=records.base_timestamp,
            max_timestamp=records.max_timestamp if max_timestamp is None else max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


def build(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, Headers]],
    *,
    codec: int = NONE,
    base_timestamp: int | None = None,
    **fields: Any,
) -> bytes:
    """Return an encoded batch of (timestamp, key, value, headers) records with consecutive offsets. `fields` are
    arguments of `BatchBuilder.build`."""
    builder = BatchBuilder(codec, base_timestamp=base_timestamp)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build(**fields)
