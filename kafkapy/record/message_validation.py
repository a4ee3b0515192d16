"""Validation of produced records where the request or the topic has message format 0 or 1.

Every combination of formats behaves as in Kafka 3.9's LogValidator. If the format does not change, single messages and
wrappers of format 1 are stored as they arrived, with offsets and timestamps written into them. Records are rebuilt if
the format or the codec changes, for a wrapper of format 1 whose messages are not numbered from 0, and for every wrapper
of format 0, whose messages contain their offsets. Callers use kafkapy.record.validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkapy._ext.batch import BatchHeader, assemble, read_header
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_validation import check_messages, message_batch, store_in_place
from kafkapy._ext.message_writer import wrap
from kafkapy._ext.records import CorruptRecords
from kafkapy._ext.transcode import NUMBERED, Converted, convert_payload
from kafkapy._ext.validation import BatchRules, InvalidBatch, ValidatedBatch, assign, built_batch
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import APPEND_TIME, payload_of
from kafkapy.record.compression import NONE, ZSTD, DecompressionError, compress, pieces
from kafkapy.record.legacy import read_entry
from kafkapy.record.records import Buffer

_AT_MAGIC = 16
_BATCH_HEADER = 61


class Rules(NamedTuple):
    """The settings of the topic and the request, by which records are validated. kafkapy.record.validation.validate
    describes the fields."""

    now_ms: int
    timestamp_type: int
    before_max_ms: int
    after_max_ms: int
    compact: bool
    target_codec: int
    target_level: int | None
    max_message_bytes: int
    max_decompressed: int

    def codec_for(self, codec: int) -> int:
        """Return the codec in which to store records that arrived with `codec`: the topic's codec, or `codec` itself if
        the topic keeps the producer's."""
        return codec if self.target_codec < 0 else self.target_codec


def validate_any(buffer: Buffer, target_magic: int, any_magic: bool, rules: Rules) -> ValidatedBatch:
    """Validate records of any format for a topic with any format, and return them in the topic's format. Raises
    InvalidBatch."""
    if memoryview(buffer).readonly:
        buffer = bytearray(buffer)
    if any_magic and len(buffer) > _AT_MAGIC and buffer[_AT_MAGIC] < 2:
        return _validate_messages(buffer, target_magic, rules)
    return _validate_for_old_topic(buffer, target_magic, rules)


def _validate_messages(buffer: Buffer, target_magic: int, rules: Rules) -> ValidatedBatch:
    """Validate records that arrived in format 0 or 1, and return them in format `target_magic`. Raises InvalidBatch."""
    magic = buffer[_AT_MAGIC]
    is_rebuilt = magic != target_magic or magic == 0
    unpacked = []

    def unpack(codec: int, payload: memoryview) -> Iterator[bytes]:
        for piece in _pieces(codec, payload, rules, broken_checksum=magic == 0):
            if is_rebuilt:
                unpacked.append(piece)
            yield piece

    checked = check_messages(
        buffer,
        unpack,
        now_ms=rules.now_ms,
        timestamp_type=rules.timestamp_type,
        before_max_ms=rules.before_max_ms,
        after_max_ms=rules.after_max_ms,
        compact=rules.compact,
        max_message_bytes=rules.max_message_bytes,
    )
    codec = rules.codec_for(checked.codec)
    whole = memoryview(buffer)[: checked.size]
    if checked.codec == NONE:
        if magic == target_magic and codec == NONE:
            return store_in_place(whole, checked, rules.timestamp_type, rules.now_ms)
        return _rebuild(whole, None, target_magic, codec, rules)
    if not is_rebuilt and codec == checked.codec and checked.in_order:
        return store_in_place(whole, checked, rules.timestamp_type, rules.now_ms)
    wrapper = read_entry(whole)
    payload = b"".join(unpacked) if is_rebuilt else payload_of(whole, wrapper, rules.max_decompressed)
    unpacked.clear()  # frees as much memory again
    return _rebuild(payload, wrapper, target_magic, codec, rules)


def _validate_for_old_topic(buffer: Buffer, target_magic: int, rules: Rules) -> ValidatedBatch:
    """Validate records that arrived in format 2 for a topic of format 0 or 1, and return them in format `target_magic`.
    Raises InvalidBatch."""
    settings = BatchRules(
        lambda codec, payload: _pieces(codec, payload, rules),
        compress,
        timestamp_type=rules.timestamp_type,
        before_max_ms=rules.before_max_ms,
        after_max_ms=rules.after_max_ms,
        compact=rules.compact,
        target_codec=-1,
        max_message_bytes=rules.max_message_bytes,
        plain_only=True,
    )
    checked = settings.validate(buffer, rules.now_ms)
    header = read_header(checked.data)
    payload = payload_of(checked.data, header, rules.max_decompressed)
    return _rebuild(payload, header, target_magic, rules.codec_for(header.codec), rules)


def _pieces(codec: int, payload: memoryview, rules: Rules, *, broken_checksum: bool = False) -> Iterator[bytes]:
    try:
        yield from pieces(codec, payload, rules.max_decompressed, broken_checksum=broken_checksum)
    except DecompressionError as reason:
        raise InvalidBatch(Errors.INVALID_RECORD, str(reason)) from reason


def _rebuild(
    payload: Buffer, header: BatchHeader | MessageHeader | None, magic: int, codec: int, rules: Rules
) -> ValidatedBatch:
    """Return the validated records converted to message format `magic`, compressed with `codec`, with offsets 0, 1, ...

    `payload` has the decompressed records and `header` the header of their batch or wrapper. `header` is None for
    single messages.
    """
    if magic < 2 and codec == ZSTD:
        raise InvalidBatch(
            Errors.UNSUPPORTED_COMPRESSION_TYPE,
            f"the topic's message format {magic} does not support zstd, which needs format 2",
        )
    try:
        converted = convert_payload(
            payload,
            header,
            magic,
            offsets=NUMBERED,
            append_time=rules.now_ms if rules.timestamp_type else None,
            limit=max(rules.max_decompressed, len(payload)),
        )
    except CorruptRecords as reason:
        raise InvalidBatch(Errors.INVALID_RECORD, str(reason)) from reason
    if magic == 2:
        return _batch(converted, codec, rules)
    if converted.headers:
        # Kafka's error code, which results from an unhandled exception there.
        raise InvalidBatch(
            Errors.UNKNOWN_SERVER_ERROR, f"the topic's message format {magic} does not support record headers"
        )
    if codec == NONE:
        _check_size(converted.largest, rules)
        return _message_set(converted, converted.payload, magic, codec, rules)
    if magic == 0:
        return _compress_after_numbering(converted, codec, rules)
    packed = compress(codec, converted.payload, rules.target_level)
    wrapper = wrap(packed, magic, codec, converted.count - 1, converted.max_timestamp, rules.timestamp_type)
    _check_size(len(wrapper), rules)
    return _message_set(converted, bytearray(wrapper), magic, codec, rules)


def _batch(converted: Converted, codec: int, rules: Rules) -> ValidatedBatch:
    if codec == NONE:
        _check_size(_BATCH_HEADER + len(converted.payload), rules)  # checked before the copy
    data = assemble(
        compress(codec, converted.payload, rules.target_level),
        count=converted.count,
        attributes=codec | (APPEND_TIME if rules.timestamp_type else 0),
        base_timestamp=converted.base_timestamp,
        max_timestamp=rules.now_ms if rules.timestamp_type else converted.max_timestamp,
    )
    _check_size(len(data), rules)
    return built_batch(memoryview(bytearray(data)))


def _message_set(converted: Converted, data: bytearray, magic: int, codec: int, rules: Rules) -> ValidatedBatch:
    return message_batch(
        memoryview(data),
        magic,
        codec,
        converted.count,
        rules.timestamp_type,
        converted.max_timestamp,
        converted.index_of_max,
        True,
    )


def _compress_after_numbering(converted: Converted, codec: int, rules: Rules) -> ValidatedBatch:
    """Return a wrapper of format 0. It is compressed only when the offsets of its messages are known, because
    compressed messages of format 0 contain their absolute offsets."""
    inner = _message_set(converted, converted.payload, 0, NONE, rules)
    count = converted.count

    def remake(base_offset: int) -> bytearray:
        assign(inner, base_offset, -1)
        packed = compress(codec, inner.data, rules.target_level, broken_checksum=True)
        wrapper = wrap(packed, 0, codec, base_offset + count - 1)
        try:
            _check_size(len(wrapper), rules)
        except InvalidBatch as reason:
            raise KafkaError(reason.code, reason.message) from reason
        return bytearray(wrapper)

    return message_batch(memoryview(b""), 0, codec, count, rules.timestamp_type, -1, -1, True, remake)


def _check_size(size: int, rules: Rules) -> None:
    if 0 <= rules.max_message_bytes < size:
        raise InvalidBatch(
            Errors.MESSAGE_TOO_LARGE,
            f"{size} bytes, after conversion to the topic's format and codec, exceed the topic's limit of "
            f"{rules.max_message_bytes}",
        )
