"""Checks the records in a produce request against the request's version (ProduceRequest.validateRecords)."""

from __future__ import annotations

from kafkapy.errors import Errors, KafkaError

BATCHES_SINCE = 3  # a request has one record batch per partition; before this version it has a message set
ZSTD_SINCE = 7
AT_MAGIC = 16
_AT_SIZE = 8
_OVERHEAD = 12  # the offset and size fields
_LEAST_SIZE = 14
_AT_CODEC = 22  # the low byte of a record batch's attributes
_AT_MESSAGE_CODEC = 17
_CODEC_BITS = 7
_ZSTD = 4


def is_nothing(version: int, records: memoryview) -> bool:
    """Return True if the records of a Produce request are a message set without a complete message. Versions before 3
    allow that; for later versions return False."""
    if version >= BATCHES_SINCE:
        return False
    if len(records) <= AT_MAGIC:
        return True
    # Look at the first message only: a request can hold four million, too many for a network thread.
    size = int.from_bytes(records[_AT_SIZE:_OVERHEAD], "big", signed=True)
    return size >= _LEAST_SIZE and size > len(records) - _OVERHEAD


def check(version: int, records: memoryview | None, where: str) -> None:
    """Raise KafkaError if a Produce request of this version may not contain these records. `where` is the partition's
    name for error messages."""
    if not records:
        raise KafkaError(Errors.INVALID_RECORD, f"{where}: a produce request holds one record batch")
    magic = records[AT_MAGIC] if len(records) > AT_MAGIC else 2
    if version >= BATCHES_SINCE and magic < 2:
        raise KafkaError(
            Errors.INVALID_RECORD, f"{where}: Produce v{version} holds a batch of message format 2, this is {magic}"
        )
    at = _AT_CODEC if magic >= 2 else _AT_MESSAGE_CODEC
    if version < ZSTD_SINCE and len(records) > at and (records[at] & _CODEC_BITS) == _ZSTD:
        raise KafkaError(Errors.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_SINCE}, this is v{version}")
