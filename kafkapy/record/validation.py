"""Validation of produced records before the log appends them.

Rules and error codes are those of Kafka 3.9 (ProduceRequest.validateRecords, UnifiedLog and LogValidator).
kafkapy._ext.validation does the work in C; this module passes it the functions that compress and decompress.
kafkapy.record.message_validation handles message formats 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from kafkapy._ext.validation import BatchRules, InvalidBatch, ValidatedBatch, assign
from kafkapy.errors import Errors, KafkaError
from kafkapy.record import compression

__all__ = ["MAX_DECOMPRESSED", "RecordError", "ValidatedBatch", "Validator", "assign", "validate"]

# The limit for the decompressed bytes of a batch. Kafka has no limit; 128 MiB is a thousand times the usual batch, and
# a gzip stream of that size takes a quarter of a second.
MAX_DECOMPRESSED = 128 * 1024 * 1024

_AT_MAGIC = 16
_FOREVER = (1 << 63) - 1


class RecordError(KafkaError):
    """The error for a batch that fails validation. `record_errors` names the invalid records: [(index in the batch,
    sentence)]."""

    def __init__(self, code: int, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Validator:
    """Validates records for a topic. It prepares the settings once, for all batches."""

    __slots__ = ("_any_magic", "_format_2", "_old", "_target_magic")

    def __init__(
        self,
        *,
        timestamp_type: int = 0,
        before_max_ms: int = _FOREVER,
        after_max_ms: int = _FOREVER,
        compact: bool = False,
        target_codec: int = -1,
        target_level: int | None = None,
        max_message_bytes: int = -1,
        max_decompressed: int = MAX_DECOMPRESSED,
        target_magic: int = 2,
        any_magic: bool = False,
    ) -> None:
        """Prepare the settings, which `validate` describes."""
        settings: dict[str, Any] = {
            "timestamp_type": timestamp_type,
            "before_max_ms": before_max_ms,
            "after_max_ms": after_max_ms,
            "compact": compact,
            "target_codec": target_codec,
            "max_message_bytes": max_message_bytes,
        }
        self._format_2 = BatchRules(partial(_unpack, max_decompressed), partial(_pack, target_level), **settings)
        self._old = {**settings, "target_level": target_level, "max_decompressed": max_decompressed}
        self._target_magic = target_magic
        self._any_magic = any_magic

    def validate(self, buffer: bytes | bytearray | memoryview, now_ms: int, of_client: bool = True) -> ValidatedBatch:
        """Validate the records for one partition, as the function `validate` does."""
        try:
            if self._target_magic != 2 or (self._any_magic and len(buffer) > _AT_MAGIC and buffer[_AT_MAGIC] < 2):
                from kafkapy.record.message_validation import Rules, validate_any

                rules = Rules(now_ms=now_ms, **self._old)
                return validate_any(buffer, self._target_magic, self._any_magic, rules)
            return self._format_2.validate(buffer, now_ms, of_client)
        except InvalidBatch as reason:
            raise RecordError(reason.code, reason.message, reason.record_errors) from None
        except MemoryError:
            # Only this batch is refused, with the code of other shortages, after which producers send it again.
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "there is not enough memory to read the records") from None


def validate(
    buffer: bytes | bytearray | memoryview, *, now_ms: int, of_client: bool = True, **settings: Any
) -> ValidatedBatch:
    """Validate the records for one partition: exactly one batch of format 2. Return it as a ValidatedBatch; raises
    RecordError if it is invalid, KafkaError KAFKA_STORAGE_ERROR if there is not enough memory.

    With `any_magic`, the records may also be messages of format 0 or 1: one compressed wrapper, or any number of
    uncompressed messages.

    buffer: the records, best as a writable memoryview of the receive buffer: timestamp type, max timestamp and checksum
        are changed in it if the topic requires it, and `assign` writes the offset into it.
    now_ms: the time of the append.
    timestamp_type: the topic's timestamp type, 0 CreateTime, 1 LogAppendTime.
    before_max_ms, after_max_ms: how far a timestamp may be from now (message.timestamp.before.max.ms, after).
    compact: True if every record needs a key.
    target_codec: the topic's codec, -1 for "producer". If it differs from the batch's, the batch is rebuilt and
        compressed with target_level.
    max_message_bytes: the size limit of the batch, -1 for no limit.
    max_decompressed: the limit for the decompressed bytes.
    target_magic: the topic's message format; records of another format are converted.
    any_magic: True for requests before version 3, whose records may have an older format than 2.
    of_client: False for batches that this broker itself writes. They may be control batches, and may have a producer id
        without a sequence.
    """
    return Validator(**settings).validate(buffer, now_ms, of_client)


def _unpack(max_decompressed: int, codec: int, payload: memoryview) -> Iterator[bytes]:
    try:
        yield from compression.pieces(codec, payload, max_decompressed)
    except compression.DecompressionError as reason:
        raise InvalidBatch(Errors.INVALID_RECORD, str(reason)) from reason


def _pack(level: int | None, codec: int, payload: bytes) -> bytes:
    return compression.compress(codec, payload, level)
