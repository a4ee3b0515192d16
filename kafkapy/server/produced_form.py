"""What the records of a produce request may be, by its version (ProduceRequest.validateRecords)."""

from __future__ import annotations

from kafkapy.errors import Errors, KafkaError

BATCHES_SINCE = 3  # before that the records are message sets, of several messages; since then exactly one batch
ZSTD_SINCE = 7
AT_MAGIC = 16
_AT_SIZE = 8
_OVERHEAD = 12  # offset and size
_LEAST_SIZE = 14
_AT_CODEC = 22  # the lower byte of a batch's attributes
_AT_MESSAGE_CODEC = 17
_CODEC_BITS = 7
_ZSTD = 4


def is_nothing(version: int, records: memoryview) -> bool:
    """Whether there is no whole message, be it that the first was cut off: in the old versions that is no error."""
    if version >= BATCHES_SINCE:
        return False
    if len(records) <= AT_MAGIC:
        return True
    # Only the first message: on the network thread nobody walks over the four million that a request can hold.
    size = int.from_bytes(records[_AT_SIZE:_OVERHEAD], "big", signed=True)
    return size >= _LEAST_SIZE and size > len(records) - _OVERHEAD


def check(version: int, records: memoryview | None, where: str) -> None:
    """Raises KafkaError for what a request of this version may not carry; `where` names the partition."""
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
